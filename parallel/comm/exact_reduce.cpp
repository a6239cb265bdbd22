#include "parallel/comm/exact_reduce.h"

#include <cstring>

namespace trireme {

void all_reduce(ExactSum& sum, ProcessGroup& group) {
  sum.carry();
  ExactSum::Words& words = sum.all();
  const Tensor carrier = Tensor::empty({static_cast<std::int64_t>(words.size())}, DType::i64);
  std::memcpy(carrier.raw(), words.data(), sizeof words);
  group.all_reduce(carrier).wait();
  std::memcpy(words.data(), carrier.raw(), sizeof words);
}

}  // namespace trireme
