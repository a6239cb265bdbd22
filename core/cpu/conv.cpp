#include "core/cpu/conv.h"

#include <algorithm>
#include <vector>

#include "core/cpu/conv_copies.h"
#include "core/cpu/gemm.h"
#include "core/cpu/kernels.h"
#include "core/cpu/partition.h"
#include "core/parallel_for.h"

namespace trireme::cpu {
namespace {

using Offsets = std::vector<std::int64_t>;

constexpr std::int64_t copied_elements_grain = 1 << 14;  // elements worth a thread
constexpr std::int64_t most_positions = 8192;            // of one product, unless one sample has more

/// The samples of one product: enough for `positions` columns or steps in all, if there are that many. It depends on
/// shapes only.
std::int64_t samples_at_once(const ConvGeometry& g, std::int64_t each, std::int64_t positions) {
  if (each <= 0) return g.batch;
  const std::int64_t most = std::clamp<std::int64_t>(positions / each, 1, g.batch);
  return divide_up(g.batch, divide_up(g.batch, most));
}

void run_product(const Product& product) {
  const MemoryScope scope(MemoryCategory::workspace);
  const auto bytes = static_cast<std::int64_t>(packed_product.workspace_bytes(product, threads()));
  const Tensor workspace = Tensor::empty({bytes}, DType::u8);
  packed_product.multiply(product, threads(), reinterpret_cast<std::byte*>(workspace.data<std::uint8_t>()));
}

/// Memory for `count` elements and a vector more, which packing may read.
template <class T>
Tensor workspace_of(std::int64_t count) {
  const MemoryScope scope(MemoryCategory::workspace);
  return Tensor::empty({count + vector_bytes / static_cast<std::int64_t>(sizeof(T))}, dtype_of<T>);
}

/// body(i) for i in [0, count), each of `size` elements.
template <class Body>
void for_each_copy(std::int64_t count, std::int64_t size, Body&& body) {
  parallel_for(count, std::max<std::int64_t>(1, copied_elements_grain / std::max<std::int64_t>(size, 1)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) body(i);
               });
}

/// The padded channels of one group, of some samples: [samples, channels, plane].
template <class T>
void pad_group(const T* x, const ConvGeometry& g, std::int64_t all_channels, std::int64_t height, std::int64_t width,
               std::int64_t group, IndexRange samples, const PaddedPlane& plane, T* to) {
  const std::int64_t channels = all_channels / g.groups;
  for_each_copy(samples.size() * channels, plane.size(), [&](std::int64_t i) {
    const std::int64_t sample = samples.begin + i / channels, channel = group * channels + i % channels;
    pad_plane(x + (sample * all_channels + channel) * height * width, height, width, plane, to + i * plane.size());
  });
}

/// The offset of each position's first element, [samples, height, width], in padded channels of `sample_size` elements.
Offsets position_offsets(std::int64_t samples, std::int64_t sample_size, std::int64_t height, std::int64_t row_step,
                         std::int64_t width, std::int64_t column_step) {
  Offsets offsets;
  offsets.reserve(static_cast<std::size_t>(samples * height * width));
  for (std::int64_t n = 0; n < samples; ++n)
    for (std::int64_t row = 0; row < height; ++row)
      for (std::int64_t column = 0; column < width; ++column)
        offsets.push_back(n * sample_size + row * row_step + column * column_step);
  return offsets;
}

// ---- forward --------------------------------------------------------------------------------------------------------

/// What a forward reads of a padded plane of x: with a kernel of one row or column, only those of the outputs.
PaddedPlane input_plane(const ConvGeometry& g) {
  const bool one_row = g.kernel_height == 1, one_column = g.kernel_width == 1;
  return {.rows = one_row ? g.out_height() : g.height + 2 * g.padding[0],
          .columns = one_column ? g.out_width() : divide_up(g.width + 2 * g.padding[1], g.stride[1]),
          .phases = one_column ? 1 : g.stride[1],
          .spacing = g.stride[1],
          .row_step = one_row ? g.stride[0] : 1,
          .top = g.padding[0],
          .left = g.padding[1]};
}

template <class T>
void conv_forward(const T* x, const T* weight, const T* bias, const ConvGeometry& g, T* y) {
  const std::int64_t positions = g.out_positions(), kernel = g.kernel_positions(), depth = g.in_group() * kernel;
  const PaddedPlane plane = input_plane(g);
  const std::int64_t most = samples_at_once(g, positions, most_positions), sample_size = g.in_group() * plane.size();
  Offsets rows;  // of (c, r, s)
  for (std::int64_t c = 0; c < g.in_group(); ++c)
    for (std::int64_t i = 0; i < kernel; ++i)
      rows.push_back(c * plane.size() +
                     plane.at(i / g.kernel_width * g.dilation[0], i % g.kernel_width * g.dilation[1]));
  const Offsets columns = position_offsets(most, sample_size, g.out_height(),
                                           g.stride[0] / plane.row_step * plane.row_size(), g.out_width(), 1);
  const Offsets results = position_offsets(most, g.out_channels * positions, 1, 0, positions, 1);
  const Tensor padded = workspace_of<T>(most * sample_size);
  const GatheredMatrix gathered{padded.data<T>(), rows.data(), columns.data()};
  for (std::int64_t first = 0; first < g.batch; first += most) {
    const IndexRange samples{first, std::min(first + most, g.batch)};
    for (std::int64_t group = 0; group < g.groups; ++group) {
      pad_group(x, g, g.in_channels, g.height, g.width, group, samples, plane, padded.data<T>());
      const std::int64_t channel = group * g.out_group(), width = samples.size() * positions;
      T* const c = y + (first * g.out_channels + channel) * positions;
      for (std::int64_t i = 0; bias != nullptr && i < samples.size() * g.out_group(); ++i) {
        const std::int64_t n = i / g.out_group(), o = i % g.out_group();
        std::fill_n(c + (n * g.out_channels + o) * positions, positions, bias[channel + o]);
      }
      run_product({.a = {const_cast<T*>(weight) + channel * depth, dtype_of<T>, g.out_group(), depth, depth, 1},
                   .b = {nullptr, dtype_of<T>, depth, width, 0, 0},
                   .c = {c, dtype_of<T>, g.out_group(), width, positions, 1},
                   .beta = bias != nullptr ? 1.0 : 0.0,
                   .gathered_b = &gathered,
                   .c_columns = samples.size() > 1 ? results.data() : nullptr});
    }
  }
}

// ---- gradient of the input ------------------------------------------------------------------------------------------

/// Along one dim: the kernel positions that reach the positions first, first + stride, .. of x, and which row (or
/// column) of dy each uses for the first of them.
struct Residue {
  std::int64_t first, count;  // positions of x
  std::vector<std::int64_t> kernel, source;
};

std::vector<Residue> residues(std::int64_t extent, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                              std::int64_t dilation) {
  std::vector<Residue> all;
  for (std::int64_t first = 0; first < std::min(stride, extent); ++first) {
    Residue residue{first, divide_up(extent - first, stride), {}, {}};
    for (std::int64_t k = 0; k < kernel; ++k) {
      const std::int64_t at = first + padding - k * dilation;
      if (at % stride != 0) continue;
      residue.kernel.push_back(k);
      residue.source.push_back(at / stride);
    }
    all.push_back(std::move(residue));
  }
  return all;
}

/// How far the residues read before dy's first and beyond its last element.
struct Margins {
  std::int64_t before = 0, after = 0;
  Margins(const std::vector<Residue>& all, std::int64_t extent) {
    for (const Residue& residue : all)
      for (const std::int64_t source : residue.source) {
        before = std::max(before, -source);
        after = std::max(after, source + residue.count - extent);
      }
  }
};

/// The product of one residue of the rows and one of the columns.
struct ResidueProduct {
  Offsets order;       ///< kernel positions
  Offsets patch_rows;  ///< of (o, r, s), in dy's padded planes
  Offsets positions;   ///< of the positions of x in those planes
  Offsets results;     ///< of the positions of x in dx
  std::int64_t width;  ///< positions of one sample
};

ResidueProduct residue_product(const Residue& rows, const Residue& columns, const ConvGeometry& g,
                               const PaddedPlane& plane, std::int64_t most) {
  ResidueProduct product;
  for (const std::int64_t r : rows.kernel)
    for (const std::int64_t s : columns.kernel) product.order.push_back(r * g.kernel_width + s);
  for (std::int64_t o = 0; o < g.out_group(); ++o)
    for (const std::int64_t r : rows.source)
      for (const std::int64_t s : columns.source)
        product.patch_rows.push_back(o * plane.size() + plane.at(r + plane.top, s + plane.left));
  product.positions =
      position_offsets(most, g.out_group() * plane.size(), rows.count, plane.row_size(), columns.count, 1);
  product.results = position_offsets(most, g.in_channels * g.height * g.width, rows.count, g.stride[0] * g.width,
                                     columns.count, g.stride[1]);
  for (std::int64_t& offset : product.results) offset += rows.first * g.width + columns.first;
  product.width = rows.count * columns.count;
  return product;
}

template <class T>
void conv_input_gradient(const T* dy, const T* weight, const ConvGeometry& g, T* dx) {
  const std::vector<Residue> all_rows = residues(g.height, g.kernel_height, g.stride[0], g.padding[0], g.dilation[0]);
  const std::vector<Residue> all_columns = residues(g.width, g.kernel_width, g.stride[1], g.padding[1], g.dilation[1]);
  const Margins vertical(all_rows, g.out_height()), horizontal(all_columns, g.out_width());
  const PaddedPlane plane{.rows = vertical.before + g.out_height() + vertical.after,
                          .columns = horizontal.before + g.out_width() + horizontal.after,
                          .top = vertical.before,
                          .left = horizontal.before};
  const std::int64_t largest = all_rows[0].count * all_columns[0].count, sample_size = g.out_group() * plane.size();
  const std::int64_t most = samples_at_once(g, largest, most_positions), image = g.height * g.width;
  std::vector<ResidueProduct> products;  // those that have kernel positions
  for (const Residue& rows : all_rows)
    for (const Residue& columns : all_columns)
      if (!rows.kernel.empty() && !columns.kernel.empty())
        products.push_back(residue_product(rows, columns, g, plane, most));
  if (products.size() < all_rows.size() * all_columns.size())
    for_each_copy(g.batch * g.in_channels, image, [&](std::int64_t i) { std::fill_n(dx + i * image, image, T{}); });
  const Tensor padded = workspace_of<T>(most * sample_size);
  const std::int64_t kernels_of_output = g.in_group() * g.kernel_positions();
  for (std::int64_t first = 0; first < g.batch; first += most) {
    const IndexRange samples{first, std::min(first + most, g.batch)};
    for (std::int64_t group = 0; group < g.groups; ++group) {
      pad_group(dy, g, g.out_channels, g.out_height(), g.out_width(), group, samples, plane, padded.data<T>());
      for (const ResidueProduct& product : products) {
        const auto depth = static_cast<std::int64_t>(product.patch_rows.size());
        const std::int64_t width = samples.size() * product.width;
        const GatheredMatrix gathered{padded.data<T>(), product.patch_rows.data(), product.positions.data()};
        const KernelMatrix matrix{.data = weight + group * g.out_group() * kernels_of_output,
                                  .output_stride = kernels_of_output,
                                  .kernel = g.kernel_positions(),
                                  .order = product.order.data(),
                                  .order_count = static_cast<std::int64_t>(product.order.size()),
                                  .end = weight + g.out_channels * kernels_of_output};
        run_product({.a = {nullptr, dtype_of<T>, g.in_group(), depth, 0, 0},
                     .b = {nullptr, dtype_of<T>, depth, width, 0, 0},
                     .c = {dx + (first * g.in_channels + group * g.in_group()) * image, dtype_of<T>, g.in_group(),
                           width, image, 1},
                     .gathered_b = &gathered,
                     .kernel_a = &matrix,
                     .c_columns = product.results.data()});
      }
    }
  }
}

// ---- gradient of the weight -----------------------------------------------------------------------------------------

/// The input channels of a group in blocks with channels last: [samples, blocks, rows, columns, block]. A row of a
/// panel of patches is then a run in memory.
template <class T>
struct ChannelBlocks {
  std::int64_t block, count;   // channels of a block; blocks
  std::int64_t rows, columns;  // padded
  explicit ChannelBlocks(const ConvGeometry& g)
      : block(std::min<std::int64_t>(g.in_group(), tile_columns<accumulate_t<T>>)),
        count(divide_up(g.in_group(), block)),
        rows(g.height + 2 * g.padding[0]),
        columns(g.width + 2 * g.padding[1]) {}
  std::int64_t block_size() const { return rows * columns * block; }
  std::int64_t sample_size() const { return count * block_size(); }
  IndexRange channels(std::int64_t i, std::int64_t all) const { return {i * block, std::min((i + 1) * block, all)}; }

  void fill(const T* x, const ConvGeometry& g, std::int64_t group, IndexRange samples, T* to) const {
    for_each_copy(samples.size() * count, block_size(), [&](std::int64_t i) {
      const IndexRange some = channels(i % count, g.in_group());
      const T* const from =
          x + ((samples.begin + i / count) * g.in_channels + group * g.in_group() + some.begin) * g.height * g.width;
      T* const image = to + i * block_size();
      if (g.padding[0] + g.padding[1] > 0) std::fill_n(image, block_size(), T{});
      move_channels_last(from, some.size(), g.height, g.width, image + (g.padding[0] * columns + g.padding[1]) * block,
                         block, columns * block);
    });
  }
  /// Of (block, r, s, channel).
  Offsets column_offsets(const ConvGeometry& g) const {
    Offsets offsets;
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t r = 0; r < g.kernel_height; ++r)
        for (std::int64_t s = 0; s < g.kernel_width; ++s)
          for (std::int64_t c = 0; c < channels(i, g.in_group()).size(); ++c)
            offsets.push_back(i * block_size() + (r * g.dilation[0] * columns + s * g.dilation[1]) * block + c);
    return offsets;
  }
};

/// dw [O / groups, C / groups, R S] = sums [O / groups, (block, r, s, channel)].
template <class T, class Out>
void reorder_weight_gradient(const accumulate_t<T>* sums, const ConvGeometry& g, const ChannelBlocks<T>& blocks,
                             Out* dw) {
  const std::int64_t kernel = g.kernel_positions(), depth = g.in_group() * kernel;
  for_each_copy(g.out_group(), depth, [&](std::int64_t o) {
    for (std::int64_t i = 0; i < blocks.count; ++i) {
      const IndexRange some = blocks.channels(i, g.in_group());
      const accumulate_t<T>* const from = sums + o * depth + some.begin * kernel;
      Out* const to = dw + o * depth + some.begin * kernel;
      for (std::int64_t c = 0; c < some.size(); ++c)
        for (std::int64_t k = 0; k < kernel; ++k) to[c * kernel + k] = static_cast<Out>(from[k * some.size() + c]);
    }
  });
}

/// dy of some samples as a matrix [O / groups, samples P]: a view of one sample, else a copy.
template <class T>
MatrixView outputs_as_matrix(const T* dy, const ConvGeometry& g, std::int64_t group, IndexRange samples, T* memory) {
  const std::int64_t positions = g.out_positions(), channels = g.out_group(), width = samples.size() * positions;
  const T* const first = dy + (samples.begin * g.out_channels + group * channels) * positions;
  if (samples.size() == 1) return {const_cast<T*>(first), dtype_of<T>, channels, width, positions, 1};
  for_each_copy(samples.size() * channels, positions, [&](std::int64_t i) {
    const std::int64_t n = i / channels, channel = i % channels;
    std::copy_n(first + (n * g.out_channels + channel) * positions, positions,
                memory + (channel * samples.size() + n) * positions);
  });
  return {memory, dtype_of<T>, channels, width, width, 1};
}

/// What the products of a weight's gradient read, and their sizes.
template <class T>
struct WeightGradient {
  const T* x;
  const T* dy;
  const ConvGeometry& g;
  std::int64_t most;  ///< samples of a product
  ChannelBlocks<T> blocks{g};
  std::int64_t columns = g.in_group() * g.kernel_positions();
  Offsets rows =
      position_offsets(most, blocks.sample_size(), g.out_height(), g.stride[0] * blocks.columns * blocks.block,
                       g.out_width(), g.stride[1] * blocks.block);
  Offsets offsets = blocks.column_offsets(g);

  /// The samples of one thread, and a vector: packing reads whole vectors, also past the last sample, where another
  /// thread's samples must not begin.
  std::int64_t images_size() const {
    return most * blocks.sample_size() + static_cast<std::int64_t>(vector_bytes / sizeof(T));
  }
  Tensor images(std::int64_t parts) const { return workspace_of<T>(parts * images_size()); }
  std::int64_t sums_size() const { return g.out_group() * columns; }

  /// multiply(product) with sums += dy patches(x)^T of some samples; adds to what `sums` holds if `adds`. `image` and
  /// `copies` are memory for the samples.
  template <class Multiply>
  void add(std::int64_t group, IndexRange samples, bool adds, T* image, T* copies, accumulate_t<T>* sums,
           Multiply&& multiply) const {
    blocks.fill(x, g, group, samples, image);
    const MatrixView a = outputs_as_matrix(dy, g, group, samples, copies);
    const GatheredMatrix gathered{image, rows.data(), offsets.data()};
    multiply(Product{.a = a,
                     .b = {nullptr, dtype_of<T>, a.columns, columns, 0, 0},
                     .c = {sums, dtype_of<accumulate_t<T>>, g.out_group(), columns, columns, 1},
                     .beta = adds ? 1.0 : 0.0,
                     .gathered_b = &gathered});
  }
};

/// The sums of a small weight: each thread multiplies whole samples, and the results are added in the order of the
/// samples. sums [samples, O / groups, columns]; the total is in the first.
template <class T>
void sum_by_sample(const WeightGradient<T>& gradient, std::int64_t group, T* images, accumulate_t<T>* sums) {
  const std::int64_t samples = gradient.g.batch, size = gradient.sums_size();
  const auto parts = static_cast<int>(std::min<std::int64_t>(threads(), samples));
  const GatheredMatrix none;
  const Product like{.a = {nullptr, dtype_of<T>, gradient.g.out_group(), gradient.g.out_positions(), 0, 0},
                     .b = {nullptr, dtype_of<T>, gradient.g.out_positions(), gradient.columns, 0, 0},
                     .c = {nullptr, dtype_of<accumulate_t<T>>, gradient.g.out_group(), gradient.columns, 0, 0},
                     .gathered_b = &none};
  const auto bytes = static_cast<std::int64_t>((packed_product.workspace_bytes(like, 1) + 63) / 64 * 64);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor workspace = Tensor::empty({parts * bytes}, DType::u8);
  parallel_parts(parts, [&](int part, int all) {
    auto* const memory = reinterpret_cast<std::byte*>(workspace.data<std::uint8_t>() + part * bytes);
    const IndexRange own = part_of(samples, all, part);
    for (std::int64_t n = own.begin; n < own.end; ++n)
      gradient.add(group, {n, n + 1}, false, images + part * gradient.images_size(), nullptr, sums + n * size,
                   [memory](const Product& product) { packed_product.multiply(product, 1, memory); });
  });
  parallel_for(size, copied_elements_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = 1; n < samples; ++n)
      for (std::int64_t i = begin; i < end; ++i) sums[i] += sums[n * size + i];
  });
}

template <class T, class Out>
void conv_weight_gradient(const T* x, const T* dy, const ConvGeometry& g, Out* dw) {
  using A = accumulate_t<T>;
  constexpr std::int64_t most_sums = 1 << 20;  // elements
  const std::int64_t positions = g.out_positions();
  const WeightGradient<T> gradient{x, dy, g, positions >= 512 ? 1 : samples_at_once(g, positions, 2048)};
  const bool by_sample = gradient.most == 1 && g.batch > 1 && g.batch * gradient.sums_size() <= most_sums;
  const Tensor images = gradient.images(by_sample ? std::min<std::int64_t>(threads(), g.batch) : 1);
  const Tensor copies = gradient.most > 1 ? workspace_of<T>(g.out_group() * gradient.most * positions) : Tensor();
  const Tensor sums = workspace_of<A>((by_sample ? g.batch : 1) * gradient.sums_size());
  for (std::int64_t group = 0; group < g.groups; ++group) {
    if (by_sample) {
      sum_by_sample(gradient, group, images.data<T>(), sums.data<A>());
    } else {
      for (std::int64_t first = 0; first < g.batch; first += gradient.most)
        gradient.add(group, {first, std::min(first + gradient.most, g.batch)}, first > 0, images.data<T>(),
                     copies.defined() ? copies.data<T>() : nullptr, sums.data<A>(), run_product);
    }
    reorder_weight_gradient<T>(sums.data<A>(), g, gradient.blocks, dw + group * gradient.sums_size());
  }
}

/// A 1 x 1 convolution without padding and stride is a product of plain matrices.
bool is_plain_product(const ConvGeometry& g) {
  return g.kernel_positions() == 1 && g.padding[0] == 0 && g.padding[1] == 0 && g.stride[0] == 1 && g.stride[1] == 1 &&
         g.out_positions() >= 512;
}

/// x [N, channels, ..] as [N, groups, channels / groups, positions].
Tensor grouped_view(const Tensor& x, const ConvGeometry& g) {
  return view::reshape(x, {g.batch, g.groups, x.size(1) / g.groups, x.size(2) * x.size(3)});
}

Tensor grouped_weight(const Tensor& weight, const ConvGeometry& g) {
  return view::expand(view::reshape(weight, {1, g.groups, g.out_group(), g.in_group()}),
                      {g.batch, g.groups, g.out_group(), g.in_group()});
}

}  // namespace

void conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvGeometry& g, Tensor& y) {
  if (y.count() == 0) return;
  if (is_plain_product(g)) {
    Tensor out = grouped_view(y, g);
    if (bias.defined()) {
      cpu::copy(view::expand(view::reshape(bias, {1, g.groups, g.out_group(), 1}), out.shape()), out);
    }
    return gemm(grouped_weight(weight, g), grouped_view(x, g), out, {.beta = bias.defined() ? 1.0 : 0.0});
  }
  visit_floating(x.dtype(), "conv2d", [&](auto tag) {
    using T = typename decltype(tag)::type;
    conv_forward(x.data<T>(), weight.data<T>(), bias.defined() ? bias.data<T>() : nullptr, g, y.data<T>());
  });
}

void conv2d_input_gradient(const Tensor& dy, const Tensor& weight, const ConvGeometry& g, Tensor& dx) {
  if (dx.count() == 0) return;
  if (is_plain_product(g)) {
    Tensor out = grouped_view(dx, g);
    return gemm(view::transpose(grouped_weight(weight, g), 2, 3), grouped_view(dy, g), out, {});
  }
  visit_floating(dy.dtype(), "conv2d", [&](auto tag) {
    using T = typename decltype(tag)::type;
    conv_input_gradient(dy.data<T>(), weight.data<T>(), g, dx.data<T>());
  });
}

void conv2d_weight_gradient(const Tensor& x, const Tensor& dy, const ConvGeometry& g, Tensor& dw) {
  if (dw.count() == 0) return;
  if (x.count() == 0 || dy.count() == 0) return fill(dw, 0);
  visit_floating(x.dtype(), "conv2d", [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (dw.dtype() == dtype_of<T>) {  // NOLINT(bugprone-branch-clone): two types of dw
      conv_weight_gradient(x.data<T>(), dy.data<T>(), g, dw.data<T>());
    } else {
      conv_weight_gradient(x.data<T>(), dy.data<T>(), g, dw.data<accumulate_t<T>>());
    }
  });
}

}  // namespace trireme::cpu
