// What the wrong answers of lab 5 take from its solution: all but the function in which they are wrong.
#pragma once

#include "examples/labs/05_sequence/lab.h"

namespace trireme::labs::sequence::solution {

std::int64_t ring_bytes(int ranks, std::int64_t length, std::int64_t heads, std::int64_t width);
std::int64_t ulysses_bytes(int ranks, std::int64_t length, std::int64_t heads, std::int64_t width);
double plain_imbalance(int ranks, std::int64_t length);
double zigzag_imbalance(int ranks, std::int64_t length);
double tokens_to_hide(std::int64_t width, double bytes_per_second);
Partial combined(const Partial& a, const Partial& b);
Chunks chunks_of(int rank, int ranks);
Tensor half(const Tensor& x, int i);
Tensor ring_attention(Rank& rank, const Qkv& x);
Tensor to_heads(Rank& rank, const Tensor& x);
Tensor to_tokens(Rank& rank, const Tensor& x);
Tensor ulysses_attention(Rank& rank, const Qkv& x);
Qkv ulysses_backward(Rank& rank, const Qkv& own_heads, const Tensor& dout);
Tensor gain_gradient(Rank& rank, const Tensor& normalized, const Tensor& dh);

inline constexpr Answers answers = {
    ring_bytes,     ulysses_bytes, plain_imbalance, zigzag_imbalance,  tokens_to_hide,   combined,     chunks_of,
    ring_attention, to_heads,      to_tokens,       ulysses_attention, ulysses_backward, gain_gradient};

}  // namespace trireme::labs::sequence::solution
