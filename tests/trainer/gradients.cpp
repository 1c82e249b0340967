// SPDX-License-Identifier: Apache-2.0
// The trainer's gradients against differences of its loss, in fp64: the templates that train, in another type.
#include <doctest/doctest.h>

#include <cmath>

#include "../../examples/trainer/experts.hpp"

using namespace trainer;

namespace {

/// A model of two layers, one of them with experts, and a batch, with every weight in one flat array.
struct tiny {
  sizes z{.hidden = 12,
          .heads = 4,
          .groups = 2,
          .head = 4,
          .ffn = 12,
          .vocabulary = 256,
          .experts = 4,
          .expert_ffn = 6,
          .layers = 2,
          .blocks = 2,
          .length = 6,
          .batch = 3};
  alone one;
  dataset data{7, z.length};
  rotation<double> turned{z.length, z.head};
  vector<double> weights, gradient;
  layer_slots layers[2];
  slot words, final_norm, out_words;
  std::vector<tokens> text;
  expert_round round{&one, 1, 1, {{0, 3}}};
  std::vector<std::pair<const char*, slot>> kinds;

  slot add(const char* kind, index_t rows, index_t columns) {
    const slot s{static_cast<index_t>(weights.size()), rows, columns};
    for (index_t i = 0; i < rows * columns; ++i) {
      const double noise = static_cast<double>(mix(weights.size()) >> 11) / 9007199254740992.0 - 0.5;
      weights.push_back(rows == 1 ? 1 + 0.2 * noise : 0.6 * noise);
    }
    kinds.emplace_back(kind, s);
    return s;
  }

  tiny() {
    words = add("embedding", z.vocabulary, z.hidden);
    for (index_t l = 0; l < 2; ++l) {
      layer_slots& at = layers[l];
      at.number = l;
      at.norm1 = add("norm before attention", 1, z.hidden);
      at.qkv = add("qkv", (z.heads + 2 * z.groups) * z.head, z.hidden);
      at.q_norm = add("norm of q", 1, z.head), at.k_norm = add("norm of k", 1, z.head);
      at.proj = add("proj", z.hidden, z.heads * z.head);
      at.norm2 = add("norm before the mlp", 1, z.hidden);
      if (l == 0) {
        at.fc1 = add("fc1", 2 * z.ffn, z.hidden), at.fc2 = add("fc2", z.hidden, z.ffn);
        continue;
      }
      at.router = add("router", z.experts, z.hidden);
      for (index_t e = 0; e < z.experts; ++e) {
        at.expert_fc1.push_back(add("fc1 of an expert", 2 * z.expert_ffn, z.hidden));
        at.expert_fc2.push_back(add("fc2 of an expert", z.hidden, z.expert_ffn));
      }
    }
    final_norm = add("final norm", 1, z.hidden);
    out_words = add("output", z.vocabulary, z.hidden);
    for (index_t n = 0; n < 3; ++n) text.push_back(data.sample(n));
    gradient.resize(weights.size());
  }

  /// The sum of the losses; with gradients, into `gradient`.
  double loss(bool with_gradients) {
    context<double> c;
    c.z = z, c.tensor = &one, c.weight = weights.data(), c.gradient = gradient.data(), c.samples = {0, 3};
    attention<double> attend[2];
    normed<double> norm2[2];
    vector<double> xn[2];
    mlp<double> feed;
    mixture<double> mix;
    output<double> out;
    vector<double> x = embed(c, words, 0, text);
    for (std::uint64_t l = 0; l < 2; ++l) {
      dropout<double>{c, 2 * l}.add(attend[l].forward(c, layers[l], turned, x), x);
      xn[l] = norm2[l].forward(x.data(), c.of(layers[l].norm2), c.rows(), z.hidden);
      dropout<double>{c, 2 * l + 1}.add(
          l == 0 ? feed.forward(c, layers[l], xn[l]) : mix.forward(c, layers[l], round, xn[l]), x);
    }
    const double sum = out.forward(c, final_norm, out_words, 0, text, x);
    if (!with_gradients) return sum;
    std::fill(gradient.begin(), gradient.end(), 0);
    vector<double> dx = out.backward(c, final_norm, out_words, 0, text);
    const auto add = [&](const vector<double>& more) {
      for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += more[i];
    };
    for (std::uint64_t l = 2; l-- > 0;) {
      const vector<double> d = dropout<double>{c, 2 * l + 1}.back(dx),
                           dxn = l == 0 ? feed.backward(c, layers[l], xn[l], d)
                                        : mix.backward(c, layers[l], round, xn[l], d);
      add(norm_back(c, layers[l].norm2, norm2[l], dxn.data()));
      add(attend[l].backward(c, layers[l], turned, dropout<double>{c, 2 * l}.back(dx)));
    }
    embed_back(c, words, 0, text, dx);
    return sum;
  }
};

}  // namespace

TEST_CASE("the gradient of every kind of parameter is that of differences") {
  tiny t;
  CHECK(t.loss(true) > 0);
  const vector<double> gradient = t.gradient;
  for (const auto& of : t.kinds) {
    const std::string kind = of.first;
    const slot s = of.second;
    double squares = 0, off = 0;  // of this tensor: |gradient|^2, |gradient - differences|^2
    const index_t n = s.rows * s.columns, step = greatest(1, n / 40);
    for (index_t i = 0; i < n; i += step) {
      const auto at = static_cast<std::size_t>(s.at + i);
      const double was = t.weights[at], h = 1e-4;
      double sides[4];
      for (int k = 0; k < 4; ++k) {
        t.weights[at] = was + h * (k < 2 ? -2 + k : k - 1);
        sides[k] = t.loss(false);
      }
      t.weights[at] = was;
      const double difference = (sides[0] - 8 * sides[1] + 8 * sides[2] - sides[3]) / (12 * h);  // of order h^4
      squares += gradient[at] * gradient[at];
      off += (gradient[at] - difference) * (gradient[at] - difference);
    }
    INFO(kind, " at ", s.at);
    CHECK(squares > 0);
    CHECK(std::sqrt(off) <= 1e-6 * std::sqrt(squares));
  }
}

TEST_CASE("leaves on the grid add to the same sum in any order and grouping, and plain floats do not") {
  std::vector<float> leaves;
  for (std::uint64_t i = 0; i < 1000; ++i)
    leaves.push_back(static_cast<float>(static_cast<double>(mix(i) >> 40) / 3e5 - 27));
  const auto sums = [&](auto&& add) {
    std::vector<double> found;
    for (const std::size_t groups : {1u, 2u, 3u, 7u, 8u, 1000u}) {
      double all = 0;
      for (std::size_t g = groups; g-- > 0;) {
        double part = 0;
        for (std::size_t i = g; i < leaves.size(); i += groups) add(part, leaves[i]);
        all += part;
      }
      found.push_back(all);
    }
    return found;
  };
  summing exact(true);
  const std::vector<double> same = sums([&](double& sum, float leaf) { exact.add(&sum, &leaf, 1, 24, "a test"); });
  for (const double s : same) CHECK(s == same[0]);
  const std::vector<double> free = sums([](double& sum, float leaf) { sum = static_cast<float>(sum + leaf); });
  CHECK(std::any_of(free.begin(), free.end(), [&](double s) { return s != free[0]; }));
  CHECK(exact.beyond() == nullptr);
}

TEST_CASE("a leaf beyond the range, and one that is no number, are told") {
  for (const float leaf : {1e6f, -1e6f, 44000.0f, std::nanf("")}) {
    summing s(true);
    double sum = 0;
    s.add(&sum, &leaf, 1, 24, "a gradient");
    CHECK(std::string_view(s.beyond()) == "a gradient");
    s.forget();
    CHECK(s.beyond() == nullptr);
  }
  summing s(true);
  double sum = 0;
  const float leaf = 43000;
  s.add(&sum, &leaf, 1, 24, "a gradient");
  CHECK(s.beyond() == nullptr);
}

TEST_CASE("an element of a product has the same bits whatever is computed beside it") {
  const index_t m = 50, n = 70, k = 37;
  vector<float> a, b;
  for (index_t i = 0; i < m * k; ++i)
    a.push_back(static_cast<float>(mix(static_cast<std::uint64_t>(i)) >> 40) / 1e7f - 0.8f);
  for (index_t i = 0; i < n * k; ++i)
    b.push_back(static_cast<float>(mix(static_cast<std::uint64_t>(i) + 99999) >> 40) / 1e7f - 0.8f);
  const auto product = [&](index_t row, index_t rows, index_t column, index_t columns) {
    vector<float> c(static_cast<std::size_t>(rows * columns));
    multiply<float>(rows, columns, k, {a.data() + row * k, k}, {b.data() + column * k, 1, k},
                    [&](index_t i, index_t j, const float* values, index_t count) {
                      std::copy_n(values, count, c.data() + i * columns + j);
                    });
    return c;
  };
  const vector<float> all = product(0, m, 0, n);
  for (const index_t rows : {1, 5, 6, 13})
    for (const index_t columns : {1, 8, 16, 31})
      for (index_t row = 0; row + rows <= m; row += 11)
        for (index_t column = 0; column + columns <= n; column += 13) {
          const vector<float> part = product(row, rows, column, columns);
          for (index_t i = 0; i < rows; ++i)
            for (index_t j = 0; j < columns; ++j)
              CHECK(part[static_cast<std::size_t>(i * columns + j)] ==
                    all[static_cast<std::size_t>((row + i) * n + column + j)]);
        }
  double wanted = 0;
  for (index_t x = 0; x < k; ++x)
    wanted += static_cast<double>(a[static_cast<std::size_t>(3 * k + x)]) *
              static_cast<double>(b[static_cast<std::size_t>(5 * k + x)]);
  CHECK(static_cast<double>(all[3 * n + 5]) == doctest::Approx(wanted).epsilon(1e-5));
}

TEST_CASE("rounding to bf16 is to the nearest, ties to even") {
  for (const auto& [x, wanted] :
       {std::pair{1.0f, 0x3F80}, {1.00390625f, 0x3F80}, {1.01171875f, 0x3F82}, {-1.004f, 0xBF81}, {0.05f, 0x3D4D}})
    CHECK(nearest_bf16(x) == wanted);
}
