// Attention on the CPU, a first plain form: one query row at a time.
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/cpu/kernels.h"
#include "core/parallel_for.h"

namespace trireme::cpu {
namespace {

template <class T>
struct Rows {
  T* data;
  Shape strides;
  explicit Rows(const Tensor& x) : data(x.data<T>()), strides(x.strides()) {}
  T* at(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return data + b * strides[0] + t * strides[1] + h * strides[2];
  }
};

template <class T>
accumulate_t<T> dot(const T* x, const T* y, std::int64_t n) {
  accumulate_t<T> sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<accumulate_t<T>>(x[i]) * static_cast<accumulate_t<T>>(y[i]);
  return sum;
}

}  // namespace

void attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale, bool causal, Tensor& out, Tensor& lse) {
  visit_floating(q.dtype(), "attention", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = accumulate_t<T>;
    const std::int64_t batch = q.size(0), tq = q.size(1), heads = q.size(2), dh = q.size(3), tk = k.size(1),
                       kv = k.size(2);
    const Rows<T> qr(q), kr(k), vr(v), outr(out);
    parallel_for(batch * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<Acc> p(static_cast<std::size_t>(tk)), sum(static_cast<std::size_t>(dh));
      for (std::int64_t bh = begin; bh < end; ++bh) {
        const std::int64_t b = bh / heads, h = bh % heads, g = h * kv / heads;
        for (std::int64_t i = 0; i < tq; ++i) {
          const std::int64_t seen = causal ? std::max<std::int64_t>(0, std::min(tk, i + tk - tq + 1)) : tk;
          Acc top = -std::numeric_limits<Acc>::infinity(), total = 0;
          for (std::int64_t j = 0; j < seen; ++j) {
            const Acc s = static_cast<Acc>(scale) * dot(qr.at(b, i, h), kr.at(b, j, g), dh);
            p[static_cast<std::size_t>(j)] = s;
            top = std::max(top, s);
          }
          std::fill(sum.begin(), sum.end(), Acc{0});
          for (std::int64_t j = 0; j < seen; ++j) {
            const Acc e = std::exp(p[static_cast<std::size_t>(j)] - top);
            total += e;
            for (std::int64_t d = 0; d < dh; ++d)
              sum[static_cast<std::size_t>(d)] += e * static_cast<Acc>(vr.at(b, j, g)[d]);
          }
          for (std::int64_t d = 0; d < dh; ++d) {
            outr.at(b, i, h)[d] = static_cast<T>(seen > 0 ? sum[static_cast<std::size_t>(d)] / total : Acc{0});
          }
          lse.data<Acc>()[bh * tq + i] = seen > 0 ? top + std::log(total) : -std::numeric_limits<Acc>::infinity();
        }
      }
    });
  });
}

void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
                        const Tensor& dout, double scale, bool causal, Tensor& dq, Tensor& dk, Tensor& dv) {
  visit_floating(q.dtype(), "attention_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = accumulate_t<T>;
    const std::int64_t batch = q.size(0), tq = q.size(1), heads = q.size(2), dh = q.size(3), tk = k.size(1),
                       kv = k.size(2);
    const Rows<T> qr(q), kr(k), vr(v), outr(out), doutr(dout), dqr(dq), dkr(dk), dvr(dv);
    parallel_for(batch * kv, 1, [&](std::int64_t begin, std::int64_t end) {
      const auto width = static_cast<std::size_t>(dh), keys = static_cast<std::size_t>(tk);
      std::vector<Acc> dks(keys * width), dvs(keys * width), dqs(width);
      for (std::int64_t bg = begin; bg < end; ++bg) {
        const std::int64_t b = bg / kv, g = bg % kv;
        std::fill(dks.begin(), dks.end(), Acc{0});
        std::fill(dvs.begin(), dvs.end(), Acc{0});
        for (std::int64_t h = g * heads / kv; h < (g + 1) * heads / kv; ++h) {
          for (std::int64_t i = 0; i < tq; ++i) {
            const std::int64_t seen = causal ? std::max<std::int64_t>(0, std::min(tk, i + tk - tq + 1)) : tk;
            const Acc row_lse = lse.data<Acc>()[(b * heads + h) * tq + i];
            const Acc delta = dot(doutr.at(b, i, h), outr.at(b, i, h), dh);
            std::fill(dqs.begin(), dqs.end(), Acc{0});
            for (std::int64_t j = 0; j < seen; ++j) {
              const Acc s = static_cast<Acc>(scale) * dot(qr.at(b, i, h), kr.at(b, j, g), dh);
              const Acc p = std::exp(s - row_lse);
              const Acc ds = static_cast<Acc>(scale) * p * (dot(doutr.at(b, i, h), vr.at(b, j, g), dh) - delta);
              Acc* dk_row = dks.data() + j * dh;
              Acc* dv_row = dvs.data() + j * dh;
              for (std::int64_t d = 0; d < dh; ++d) {
                dqs[static_cast<std::size_t>(d)] += ds * static_cast<Acc>(kr.at(b, j, g)[d]);
                dk_row[d] += ds * static_cast<Acc>(qr.at(b, i, h)[d]);
                dv_row[d] += p * static_cast<Acc>(doutr.at(b, i, h)[d]);
              }
            }
            for (std::int64_t d = 0; d < dh; ++d) dqr.at(b, i, h)[d] = static_cast<T>(dqs[static_cast<std::size_t>(d)]);
          }
        }
        for (std::int64_t j = 0; j < tk; ++j) {
          for (std::int64_t d = 0; d < dh; ++d) {
            dkr.at(b, j, g)[d] = static_cast<T>(dks[static_cast<std::size_t>(j * dh + d)]);
            dvr.at(b, j, g)[d] = static_cast<T>(dvs[static_cast<std::size_t>(j * dh + d)]);
          }
        }
      }
    });
  });
}

}  // namespace trireme::cpu
