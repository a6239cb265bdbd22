// Softmax, top_k, embedding, rope and attention_merge of the CUDA kernel table against the CPU's.
#include "tests/cuda/table_support.h"

using namespace trireme;
using namespace cuda_test;

TEST_CASE("cuda table: softmax and its gradient, in place") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training)
      for (const Shape& shape : {Shape{5, 67}, Shape{2, 1500}, Shape{3, 1}, Shape{0, 4}}) {
        const Tensor x = random(shape, 1, dtype, uniform(-1, 1)), dy = random(shape, 2, dtype, uniform(-1, 1));
        Tensor y = Tensor::empty(shape, dtype), dx = Tensor::empty(shape, dtype), y2 = there(x), dx2 = there(dy);
        host().softmax(x, y);
        host().softmax_backward(y, dy, dx);
        gpu().softmax(y2, y2);
        gpu().softmax_backward(there(y), dx2, dx2);
        CHECK(difference(y2, y, 1e-6) < 1);
        CHECK(difference(dx2, dx, 1e-6) < 1);
      }
  });
}

TEST_CASE("cuda table: the largest of rows, and NaN among them") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training)
      for (const Shape& shape : {Shape{5, 8}, Shape{3, 300}, Shape{0, 4}}) {
        const Tensor x = random(shape, 1, DType::f32, uniform(-1, 1));
        for (std::int64_t i = 3; i < x.count(); i += 11) x.data<float>()[i] = i % 2 == 0 ? NAN : -NAN;
        const Tensor rounded = cast(x, dtype);
        Tensor chosen = Tensor::empty({shape[0], 3}, DType::i32), chosen2 = like(chosen);
        host().top_k(rounded, chosen);
        gpu().top_k(there(rounded), chosen2);
        CHECK(same_bits_there(chosen2, chosen));
      }
  });
}

TEST_CASE("cuda table: embedding in a slice of the vocabulary, its gradient added to what was there") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training)
      for (const std::int64_t width : {1, 24, 37}) {
        const Tensor weight = random({11, width}, 1, dtype, uniform(-1, 1)),
                     dy = random({50, width}, 2, dtype, uniform(-1, 1));
        const Tensor ids = random_ids({50}, 4, 3, 18);  // some of them outside [5, 16)
        Tensor y = Tensor::empty(dy.shape(), dtype), y2 = like(y);
        Tensor dweight = random({11, width}, 3, DType::f32, uniform(-1, 1)), dweight2 = there(dweight);
        host().embedding(weight, ids, 5, y);
        host().embedding_backward(dy, ids, 5, dweight);
        gpu().embedding(there(weight), there(ids), 5, y2);
        gpu().embedding_backward(there(dy), there(ids), 5, dweight2);
        CHECK(same_bits_there(y2, y));
        CHECK(same_bits_there(dweight2, dweight));
      }
  });
}

TEST_CASE("cuda table: gather and scatter_add, along any dim, of views, with indices out of range") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training)
      for (const int dim : {0, 1, 2}) {
        const Tensor x = view::transpose(random({7, 5, 6}, 1, dtype, uniform(-1, 1)), 0, 2);  // [6, 5, 7]
        const Shape picks = Shape{6, 4, 3}.with(dim, 8);
        const Tensor index = random_ids(picks, 2, -1, static_cast<int>(x.size(dim)) + 1);
        const Tensor values = random(picks, 3, dtype, uniform(-1, 1));
        Tensor y = Tensor::empty(picks, dtype), y2 = like(y);
        Tensor sums = random(x.shape(), 4, DType::f32, uniform(-1, 1)), sums2 = there(sums);
        host().gather(x, dim, index, y);
        gpu().gather(view::transpose(there(contiguous(view::transpose(x, 0, 2))), 0, 2), dim, there(index), y2);
        CHECK(same_bits_there(y2, y));
        host().scatter_add(values, dim, index, sums);
        gpu().scatter_add(there(values), dim, there(index), sums2);
        CHECK(same_bits_there(sums2, sums));
      }
  });
}

TEST_CASE("cuda table: rope turned and turned back, in place") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training)
      for (const bool inverse : {false, true})
        for (const std::int64_t width : {2, 14, 32}) {
          const Tensor x = random({2, 5, 3, width}, 1, dtype, uniform(-1, 1)),
                       positions = random_ids({5}, 2, 0, 100000);
          Tensor y = Tensor::empty(x.shape(), dtype), y2 = there(x);
          host().rope(x, positions, {10000}, inverse, y);
          gpu().rope(y2, there(positions), {10000}, inverse, y2);
          CHECK(difference(y2, y) < 1);
        }
  });
}

TEST_CASE("cuda table: rope of neighbours, with other frequencies and positions of each sequence, in place") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training)
      for (const bool interleaved : {false, true})
        for (const std::int64_t width : {2, 14, 32}) {
          const Tensor x = random({2, 5, 3, width}, 1, dtype, uniform(-1, 1)),
                       positions = random_ids({2, 5}, 2, 0, 100000),
                       frequencies = random({width / 2}, 3, DType::f64, uniform(0.1, 1));
          Tensor y = Tensor::empty(x.shape(), dtype), y2 = there(x);
          host().rope(x, positions, {1, frequencies, interleaved}, false, y);
          gpu().rope(y2, there(positions), {1, there(frequencies), interleaved}, false, y2);
          CHECK(difference(y2, y) < 1);
        }
  });
}

TEST_CASE("cuda table: attention over two sets of keys joined, in parts of tensors") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training) {
      const auto late = [](const Tensor& x, int dim) { return view::slice(x, dim, 2, 4); };  // tokens 2 to 5
      const Tensor part = random({2, 3, 4, 20}, 1, dtype, uniform(-1, 1)),
                   part_lse = random({2, 4, 3}, 2, DType::f32, uniform(-1, 1));
      const Tensor out = random({2, 6, 3, 20}, 3, DType::f32, uniform(-1, 1)),
                   lse = random({2, 3, 6}, 4, DType::f32, uniform(-1, 1));
      lse.data<float>()[3] = -INFINITY;
      const Tensor out2 = there(out), lse2 = there(lse);
      const auto turned = [](const Tensor& x) { return view::transpose(x, 1, 2); };  // heads before tokens in memory
      Tensor some = late(out, 1), some_lse = late(lse, 2), some2 = late(out2, 1), some_lse2 = late(lse2, 2);
      host().attention_merge(turned(part), turned(part_lse), some, some_lse);
      gpu().attention_merge(turned(there(part)), turned(there(part_lse)), some2, some_lse2);
      CHECK(difference(out2, out) < 1);
      CHECK(difference(lse2, lse) < 1);
    }
  });
}
