// SPDX-License-Identifier: Apache-2.0
// The model, forward and backward, of the part of it that a rank has: some query groups, some runs of the ffn and of
// the vocabulary. What a layout divides is summed over leaves; everything else is a function of global numbers.
// Rows of activations are the tokens of a rank's samples, one sample after the other.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives.hpp"
#include "language.hpp"
#include "numbers.hpp"

namespace trainer {

/// The sizes of a model and of a batch.
struct sizes {
  index_t hidden = 0, heads = 0, groups = 0, head = 0, ffn = 0, vocabulary = 0, experts = 0, expert_ffn = 0;
  index_t layers = 0;
  index_t blocks = 1;  // runs of the ffn and of the vocabulary that no layout divides
  index_t length = 32, batch = 24;
};

/// What a run is told beside its layout.
struct settings {
  std::uint64_t seed = 7;
  double dropout = 0.1;
  index_t total = 300;  // steps of the rate's cosine
  bool exact = true;
};

/// A tensor, or a rank's part of one, in flat arrays of weights and of gradients: rows x columns from `at` on.
struct slot {
  index_t at = -1, rows = 0, columns = 0;
  bool there() const { return at >= 0; }
};
/// The tensors of a layer.
struct layer_slots {
  index_t number = 0;
  slot norm1, qkv, q_norm, k_norm, proj, norm2, fc1, fc2, router;
  std::vector<slot> expert_fc1, expert_fc2;  // of the rank's experts
};

template <typename Real>
using vector = std::vector<Real>;

template <typename Real>
vector<Real> zeros(index_t n) {
  return vector<Real>(static_cast<std::size_t>(n));
}
template <typename Real>
Real* row(vector<Real>& of, index_t i, index_t columns) {
  return of.data() + i * columns;
}
template <typename Real>
const Real* row(const vector<Real>& of, index_t i, index_t columns) {
  return of.data() + i * columns;
}

/// What a rank computes with.
template <typename Real>
struct context {
  sizes z;
  settings set;
  summing sums{true};
  group* tensor = nullptr;
  const Real* weight = nullptr;  // flat, as slots say
  double* gradient = nullptr;    // flat: of the sum of losses
  interval samples;              // those of the rows

  index_t count() const { return samples.size(); }
  index_t rows() const { return count() * z.length; }
  const Real* of(const slot& s) const { return weight + s.at; }

  /// Leaves of a sum over samples: a sample each, or with free sums all together. visit(first row, rows)
  template <typename Visit>
  void each_leaf(Visit&& visit) const {
    if (!sums.exact()) return visit(index_t{0}, rows());
    for (index_t n = 0; n < count(); ++n) visit(n * z.length, z.length);
  }
  /// Leaves of a sum over n rows or columns that tensor parallelism divides, `width` each: visit(first, width)
  template <typename Visit>
  void each_run(index_t n, index_t width, Visit&& visit) const {
    if (!sums.exact()) return visit(index_t{0}, n);
    for (index_t first = 0; first < n; first += width) visit(first, width);
  }
  /// The sum over the tensor-parallel ranks, in Real.
  vector<Real> summed(vector<double>& partial) {
    tensor->sum(partial);
    return {partial.begin(), partial.end()};
  }
};

/// y = x w^T; x: rows x s.columns, y: rows x s.rows.
template <typename Real>
vector<Real> linear(const context<Real>& c, const slot& s, const Real* x, index_t rows) {
  vector<Real> y = zeros<Real>(rows * s.rows);
  multiply<Real>(
      rows, s.rows, s.columns, {x, s.columns}, {c.of(s), 1, s.columns},
      [&](index_t i, index_t j, const Real* values, index_t n) { std::copy_n(values, n, row(y, i, s.rows) + j); });
  return y;
}
/// dx = dy w, whole.
template <typename Real>
vector<Real> linear_back(const context<Real>& c, const slot& s, const Real* dy, index_t rows) {
  vector<Real> dx = zeros<Real>(rows * s.columns);
  multiply<Real>(
      rows, s.columns, s.rows, {dy, s.rows}, {c.of(s), s.columns},
      [&](index_t i, index_t j, const Real* values, index_t n) { std::copy_n(values, n, row(dx, i, s.columns) + j); });
  return dx;
}
/// y += x w^T over the rank's columns, a leaf for each run of `width` of them.
template <typename Real>
void linear_sum(context<Real>& c, const slot& s, index_t width, const Real* x, vector<double>& y, index_t leaves) {
  c.each_run(s.columns, width, [&](index_t first, index_t n) {
    multiply<Real>(c.rows(), s.rows, n, {x + first, s.columns}, {c.of(s) + first, 1, s.columns},
                   [&](index_t i, index_t j, const Real* values, index_t count) {
                     c.sums.add(row(y, i, s.rows) + j, values, count, leaves, "a row-parallel product");
                   });
  });
}
/// dx += dy w over the rank's rows, a leaf for each run of `width` of them.
template <typename Real>
void linear_back_sum(context<Real>& c, const slot& s, index_t width, const Real* dy, vector<double>& dx,
                     index_t leaves) {
  c.each_run(s.rows, width, [&](index_t first, index_t n) {
    multiply<Real>(c.rows(), s.columns, n, {dy + first, s.rows}, {c.of(s) + first * s.columns, s.columns},
                   [&](index_t i, index_t j, const Real* values, index_t count) {
                     c.sums.add(row(dx, i, s.columns) + j, values, count, leaves, "a column-parallel gradient");
                   });
  });
}
/// dw += dy^T x of `rows` rows, one leaf.
template <typename Real>
void weight_leaf(context<Real>& c, const slot& s, const Real* dy, const Real* x, index_t rows) {
  multiply<Real>(s.rows, s.columns, rows, {dy, 1, s.rows}, {x, s.columns},
                 [&](index_t i, index_t j, const Real* values, index_t n) {
                   c.sums.add(c.gradient + s.at + i * s.columns + j, values, n, c.z.batch, "a weight's gradient");
                 });
}
/// dw += dy^T x, a leaf for each sample.
template <typename Real>
void weight_gradient(context<Real>& c, const slot& s, const vector<Real>& dy, const vector<Real>& x) {
  c.each_leaf(
      [&](index_t first, index_t rows) { weight_leaf(c, s, row(dy, first, s.rows), row(x, first, s.columns), rows); });
}

/// y = x / sqrt(mean(x^2) + 1e-5) * w of runs of n elements; `hat` is y without w.
template <typename Real>
struct normed {
  vector<Real> hat, inverse;

  vector<Real> forward(const Real* x, const Real* w, index_t rows, index_t n) {
    hat = zeros<Real>(rows * n), inverse = zeros<Real>(rows);
    vector<Real> y = zeros<Real>(rows * n);
    for (index_t r = 0; r < rows; ++r, x += n) {
      Real squares = 0;
      for (index_t i = 0; i < n; ++i) squares += x[i] * x[i];
      const Real by = 1 / std::sqrt(squares / static_cast<Real>(n) + static_cast<Real>(1e-5));
      inverse[static_cast<std::size_t>(r)] = by;
      Real *const h = row(hat, r, n), *const out = row(y, r, n);
      for (index_t i = 0; i < n; ++i) h[i] = x[i] * by;
      for (index_t i = 0; i < n; ++i) out[i] = h[i] * w[i];
    }
    return y;
  }
  /// dx of row r, and dy times hat added to `dw`: dx = inverse (dy w - hat mean(dy w hat))
  void backward(index_t r, const Real* dy, const Real* w, index_t n, Real* dx, Real* dw) const {
    const Real* const h = row(hat, r, n);
    Real along = 0;
    for (index_t i = 0; i < n; ++i) along += dy[i] * w[i] * h[i];
    along /= static_cast<Real>(n);
    for (index_t i = 0; i < n; ++i) dw[i] += dy[i] * h[i];
    for (index_t i = 0; i < n; ++i) dx[i] = inverse[static_cast<std::size_t>(r)] * (dy[i] * w[i] - h[i] * along);
  }
};
/// dx of all rows; the gradient of w, a leaf for each sample.
template <typename Real>
vector<Real> norm_back(context<Real>& c, const slot& s, const normed<Real>& of, const Real* dy) {
  vector<Real> dx = zeros<Real>(c.rows() * c.z.hidden);
  c.each_leaf([&](index_t first, index_t rows) {
    vector<Real> dw = zeros<Real>(c.z.hidden);
    for (index_t r = first; r < first + rows; ++r)
      of.backward(r, dy + r * c.z.hidden, c.of(s), c.z.hidden, row(dx, r, c.z.hidden), dw.data());
    c.sums.add(c.gradient + s.at, dw.data(), c.z.hidden, c.z.batch, "a norm's gradient");
  });
  return dx;
}

/// Which site of dropout keeps element i of token t of sample n:
///   mix(mix(mix(31 seed + site) ^ n) + t hidden + i) >> 32 >= floor(P 2^32)
/// `onto` += y / (1 - P) where it is kept; or, backward, y becomes what reaches it.
template <typename Real>
struct dropout {
  const context<Real>& c;
  std::uint64_t site;
  std::uint64_t by_rank = 0;  // of --damage alone: nothing that a layout knows belongs in here

  template <typename Visit>
  void each(Visit&& visit) const {
    const auto least = static_cast<std::uint64_t>(c.set.dropout * 4294967296.0);
    const std::uint64_t of_site = mix(31 * c.set.seed + site);
    for (index_t n = 0; n < c.count(); ++n) {
      const std::uint64_t key = mix(of_site ^ (static_cast<std::uint64_t>(c.samples.begin + n) + by_rank));
      const index_t first = n * c.z.length * c.z.hidden, elements = c.z.length * c.z.hidden;
      for (index_t i = 0; i < elements; ++i) visit(first + i, mix(key + static_cast<std::uint64_t>(i)) >> 32 >= least);
    }
  }
  void add(const vector<Real>& y, vector<Real>& onto) const {
    const Real keep = static_cast<Real>(1 - c.set.dropout);
    each([&](index_t i, bool kept) {
      const auto at = static_cast<std::size_t>(i);
      if (kept) onto[at] += y[at] / keep;
    });
  }
  vector<Real> back(const vector<Real>& dx) const {
    const Real keep = static_cast<Real>(1 - c.set.dropout);
    vector<Real> dy(dx.size());
    each([&](index_t i, bool kept) {
      const auto at = static_cast<std::size_t>(i);
      dy[at] = kept ? dx[at] / keep : 0;
    });
    return dy;
  }
};

/// RoPE's table: cos and sin of t base^(-2 j / d), pairs (j, j + d / 2).
template <typename Real>
struct rotation {
  vector<Real> cosine, sine;
  index_t half;

  rotation(index_t length, index_t d) : half(d / 2) {
    for (index_t t = 0; t < length; ++t)
      for (index_t j = 0; j < half; ++j) {
        const double angle =
            static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(d));
        cosine.push_back(static_cast<Real>(std::cos(angle)));
        sine.push_back(static_cast<Real>(std::sin(angle)));
      }
  }
  /// x of token t turned; backward by the opposite angle.
  void turn(index_t t, Real* x, Real direction) const {
    for (index_t j = 0; j < half; ++j) {
      const auto at = static_cast<std::size_t>(t * half + j);
      const Real a = x[j], b = x[j + half], s = direction * sine[at];
      x[j] = a * cosine[at] - b * s;
      x[j + half] = b * cosine[at] + a * s;
    }
  }
};

/// Attention by the rank's query groups; rows of qkv by group: its queries, k, v.
template <typename Real>
class attention {
 public:
  /// What it adds to the residual stream.
  vector<Real> forward(context<Real>& c, const layer_slots& l, const rotation<Real>& turned, const vector<Real>& x) {
    const index_t d = c.z.head, per = c.z.heads / c.z.groups, wide = l.qkv.rows, in = l.proj.columns;
    const Real scale = 1 / std::sqrt(static_cast<Real>(d));
    xn_ = norm_.forward(x.data(), c.of(l.norm1), c.rows(), c.z.hidden);
    qkv_ = linear(c, l.qkv, xn_.data(), c.rows());
    if (l.q_norm.there()) norm_heads(c, l);
    for (index_t r = 0; r < c.rows(); ++r)
      for (index_t h = 0; h < wide / d; ++h)
        if (h % (per + 2) != per + 1) turned.turn(r % c.z.length, row(qkv_, r, wide) + h * d, 1);
    const index_t T = c.z.length, local = in / d;
    chance_ = zeros<Real>(c.count() * local * T * T), mixed_ = zeros<Real>(c.rows() * in);
    for (index_t n = 0; n < c.count(); ++n)
      for (index_t h = 0; h < local; ++h) {
        const Real* const first = row(qkv_, n * T, wide) + (h / per) * (per + 2) * d;
        Real* const p = chance_.data() + (n * local + h) * T * T;
        multiply<Real>(
            T, T, d, {first + (h % per) * d, wide}, {first + per * d, 1, wide},
            [&](index_t i, index_t j, const Real* v, index_t count) { std::copy_n(v, count, p + i * T + j); });
        for (index_t t = 0; t < T; ++t) soften(p + t * T, t + 1, T, scale);
        multiply<Real>(T, d, T, {p, T}, {first + (per + 1) * d, wide},
                       [&](index_t i, index_t j, const Real* v, index_t count) {
                         std::copy_n(v, count, row(mixed_, n * T + i, in) + h * d + j);
                       });
      }
    vector<double> y = zeros<double>(c.rows() * c.z.hidden);
    linear_sum(c, l.proj, per * d, mixed_.data(), y, c.z.groups);
    return c.summed(y);
  }

  /// dx of what it read, of dy, its output's gradient.
  vector<Real> backward(context<Real>& c, const layer_slots& l, const rotation<Real>& turned, const vector<Real>& dy) {
    const index_t d = c.z.head, per = c.z.heads / c.z.groups, wide = l.qkv.rows, in = l.proj.columns;
    const Real scale = 1 / std::sqrt(static_cast<Real>(d));
    weight_gradient(c, l.proj, dy, mixed_);
    const vector<Real> dmixed = linear_back(c, l.proj, dy.data(), c.rows());
    const index_t T = c.z.length, local = in / d;
    vector<Real> dqkv = zeros<Real>(c.rows() * wide), dp = zeros<Real>(T * T);
    for (index_t n = 0; n < c.count(); ++n)
      for (index_t h = 0; h < local; ++h) {
        const index_t group = (h / per) * (per + 2) * d, q = group + (h % per) * d, k = group + per * d, v = k + d;
        const Real *const p = chance_.data() + (n * local + h) * T * T, *const from = row(qkv_, n * T, wide),
                          *const dm = row(dmixed, n * T, in) + h * d;
        Real* const to = row(dqkv, n * T, wide);
        const auto onto = [&](index_t at) {
          return [to, at, wide](index_t i, index_t j, const Real* values, index_t count) {
            for (index_t x = 0; x < count; ++x) to[i * wide + at + j + x] += values[x];
          };
        };
        multiply<Real>(T, d, T, {p, 1, T}, {dm, in}, onto(v));
        multiply<Real>(T, T, d, {dm, in}, {from + v, 1, wide},
                       [&](index_t i, index_t j, const Real* values, index_t count) {
                         std::copy_n(values, count, dp.data() + i * T + j);
                       });
        for (index_t t = 0; t < T; ++t) soften_back(p + t * T, dp.data() + t * T, t + 1, T, scale);
        multiply<Real>(T, d, T, {dp.data(), T}, {from + k, wide}, onto(q));
        multiply<Real>(T, d, T, {dp.data(), 1, T}, {from + q, wide}, onto(k));
      }
    for (index_t r = 0; r < c.rows(); ++r)
      for (index_t h = 0; h < wide / d; ++h)
        if (h % (per + 2) != per + 1) turned.turn(r % T, row(dqkv, r, wide) + h * d, -1);
    if (l.q_norm.there()) norm_heads_back(c, l, dqkv);
    weight_gradient(c, l.qkv, dqkv, xn_);
    vector<double> dxn = zeros<double>(c.rows() * c.z.hidden);
    linear_back_sum(c, l.qkv, (per + 2) * d, dqkv.data(), dxn, c.z.groups);
    return norm_back(c, l.norm1, norm_, c.summed(dxn).data());
  }

 private:
  /// softmax of the first `seen` of `all`, the others 0
  static void soften(Real* p, index_t seen, index_t all, Real scale) {
    Real most = p[0], sum = 0;
    for (index_t i = 1; i < seen; ++i) most = std::max(most, p[i]);
    for (index_t i = 0; i < seen; ++i) sum += p[i] = std::exp((p[i] - most) * scale);
    for (index_t i = 0; i < seen; ++i) p[i] /= sum;
    std::fill(p + seen, p + all, Real{0});
  }
  static void soften_back(const Real* p, Real* dp, index_t seen, index_t all, Real scale) {
    Real along = 0;
    for (index_t i = 0; i < seen; ++i) along += p[i] * dp[i];
    for (index_t i = 0; i < seen; ++i) dp[i] = p[i] * (dp[i] - along) * scale;
    std::fill(dp + seen, dp + all, Real{0});
  }
  /// Qwen3's norms of every head of q and of k.
  void norm_heads(context<Real>& c, const layer_slots& l) {
    each_head(
        c, l,
        [&](index_t i, Real* x, const slot& s) {
          if (i == 0) head_norms_.clear();
          head_norms_.emplace_back();
          const vector<Real> y = head_norms_.back().forward(x, c.of(s), 1, c.z.head);
          std::copy(y.begin(), y.end(), x);
        },
        qkv_);
  }
  /// Their weights' gradients have a leaf for each sample and query group.
  void norm_heads_back(context<Real>& c, const layer_slots& l, vector<Real>& dqkv) {
    const index_t d = c.z.head, per = c.z.heads / c.z.groups, groups = l.qkv.rows / d / (per + 2);
    vector<Real> leaves = zeros<Real>(c.count() * groups * 2 * d), dx = zeros<Real>(d);
    each_head(
        c, l,
        [&](index_t i, Real* dy, const slot& s) {
          const index_t r = i / (groups * (per + 1)), group = i / (per + 1) % groups,
                        of_k = i % (per + 1) == per ? 1 : 0;
          Real* const leaf = leaves.data() + ((r / c.z.length * groups + group) * 2 + of_k) * d;
          head_norms_[static_cast<std::size_t>(i)].backward(0, dy, c.of(s), d, dx.data(), leaf);
          std::copy(dx.begin(), dx.end(), dy);
        },
        dqkv);
    for (index_t i = 0; i < c.count() * groups * 2; ++i)
      c.sums.add(c.gradient + (i % 2 == 0 ? l.q_norm : l.k_norm).at, leaves.data() + i * d, d, c.z.batch * c.z.groups,
                 "a head norm's gradient");
  }
  template <typename Visit>
  static void each_head(const context<Real>& c, const layer_slots& l, Visit&& visit, vector<Real>& qkv) {
    const index_t d = c.z.head, per = c.z.heads / c.z.groups, wide = l.qkv.rows;
    for (index_t r = 0, i = 0; r < c.rows(); ++r)
      for (index_t h = 0; h < wide / d; ++h)
        if (h % (per + 2) != per + 1) visit(i++, row(qkv, r, wide) + h * d, h % (per + 2) == per ? l.k_norm : l.q_norm);
  }

  normed<Real> norm_;
  std::vector<normed<Real>> head_norms_;
  vector<Real> xn_, qkv_, chance_, mixed_;
};

/// silu(gate) up of rows of [gate, up], each `n` wide; and its derivative.
template <typename Real>
vector<Real> gated(const vector<Real>& x, index_t rows, index_t n) {
  vector<Real> y = zeros<Real>(rows * n);
  for (index_t r = 0; r < rows; ++r) {
    const Real *const gate = row(x, r, 2 * n), *const up = gate + n;
    for (index_t i = 0; i < n; ++i) y[static_cast<std::size_t>(r * n + i)] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  }
  return y;
}
template <typename Real>
vector<Real> gated_back(const vector<Real>& x, const vector<Real>& dy, index_t rows, index_t n) {
  vector<Real> dx = zeros<Real>(rows * 2 * n);
  for (index_t r = 0; r < rows; ++r) {
    const Real *const gate = row(x, r, 2 * n), *const up = gate + n, *const d = row(dy, r, n);
    Real* const out = row(dx, r, 2 * n);
    for (index_t i = 0; i < n; ++i) {
      const Real s = 1 / (1 + std::exp(-gate[i]));
      out[i] = d[i] * up[i] * s * (1 + gate[i] * (1 - s));
      out[n + i] = d[i] * gate[i] * s;
    }
  }
  return dx;
}

/// (silu(gate) up) down by the rank's runs of the ffn.
template <typename Real>
class mlp {
 public:
  vector<Real> forward(context<Real>& c, const layer_slots& l, const vector<Real>& xn) {
    fc1_ = linear(c, l.fc1, xn.data(), c.rows());
    act_ = gated(fc1_, c.rows(), l.fc2.columns);
    vector<double> y = zeros<double>(c.rows() * c.z.hidden);
    linear_sum(c, l.fc2, c.z.ffn / c.z.blocks, act_.data(), y, c.z.blocks);
    return c.summed(y);
  }
  vector<Real> backward(context<Real>& c, const layer_slots& l, const vector<Real>& xn, const vector<Real>& dy) {
    weight_gradient(c, l.fc2, dy, act_);
    const vector<Real> dact = linear_back(c, l.fc2, dy.data(), c.rows()),
                       dfc1 = gated_back(fc1_, dact, c.rows(), l.fc2.columns);
    weight_gradient(c, l.fc1, dfc1, xn);
    vector<double> dxn = zeros<double>(c.rows() * c.z.hidden);
    linear_back_sum(c, l.fc1, c.z.ffn / c.z.blocks, dfc1.data(), dxn, 2 * c.z.blocks);
    return c.summed(dxn);
  }

 private:
  vector<Real> fc1_, act_;
};

/// The first stage: rows of the vocabulary that the rank has, from `first` on; another rank has the others.
template <typename Real>
vector<Real> embed(context<Real>& c, const slot& words, index_t first, const std::vector<tokens>& text) {
  vector<double> x = zeros<double>(c.rows() * c.z.hidden);
  for (index_t r = 0; r < c.rows(); ++r) {
    const index_t word =
        text[static_cast<std::size_t>(r / c.z.length)][static_cast<std::size_t>(r % c.z.length)] - first;
    if (word >= 0 && word < words.rows) std::copy_n(c.of(words) + word * c.z.hidden, c.z.hidden, row(x, r, c.z.hidden));
  }
  return c.summed(x);
}
template <typename Real>
void embed_back(context<Real>& c, const slot& words, index_t first, const std::vector<tokens>& text,
                const vector<Real>& dx) {
  c.each_leaf([&](index_t begin, index_t rows) {
    vector<Real> leaf = zeros<Real>(words.rows * c.z.hidden);
    std::vector<bool> met(static_cast<std::size_t>(words.rows));
    for (index_t r = begin; r < begin + rows; ++r) {
      const index_t word =
          text[static_cast<std::size_t>(r / c.z.length)][static_cast<std::size_t>(r % c.z.length)] - first;
      if (word < 0 || word >= words.rows) continue;
      met[static_cast<std::size_t>(word)] = true;
      for (index_t i = 0; i < c.z.hidden; ++i) row(leaf, word, c.z.hidden)[i] += row(dx, r, c.z.hidden)[i];
    }
    for (index_t w = 0; w < words.rows; ++w)
      if (met[static_cast<std::size_t>(w)])
        c.sums.add(c.gradient + words.at + w * c.z.hidden, row(leaf, w, c.z.hidden), c.z.hidden, c.z.batch,
                   "the embedding's gradient");
  });
}

/// The last stage: final norm, logits of the rank's rows of the vocabulary, cross entropy.
template <typename Real>
class output {
 public:
  /// The sum over the rows of ln sum exp(logit) - logit of the target, a leaf for each sample.
  double forward(context<Real>& c, const slot& norm, const slot& words, index_t first, const std::vector<tokens>& text,
                 const vector<Real>& x) {
    xn_ = norm_.forward(x.data(), c.of(norm), c.rows(), c.z.hidden);
    p_ = linear(c, words, xn_.data(), c.rows());
    const index_t V = words.rows, rows = c.rows();
    vector<float> most(static_cast<std::size_t>(rows));  // shifts all logits of a row: any number does
    for (index_t r = 0; r < rows; ++r)
      most[static_cast<std::size_t>(r)] = static_cast<float>(*std::max_element(row(p_, r, V), row(p_, r, V) + V));
    c.tensor->max(most);
    vector<double> sum = zeros<double>(2 * rows);  // of exponentials; the target's logit, which one rank has
    for (index_t r = 0; r < rows; ++r) {
      const auto at = static_cast<std::size_t>(r);
      Real* const p = row(p_, r, V);
      const index_t target = target_of(c, text, r) - first;
      if (target >= 0 && target < V) sum[at + static_cast<std::size_t>(rows)] = p[target] - static_cast<Real>(most[at]);
      c.each_run(V, c.z.vocabulary / c.z.blocks, [&](index_t begin, index_t n) {
        Real leaf = 0;
        for (index_t v = begin; v < begin + n; ++v) leaf += p[v] = std::exp(p[v] - static_cast<Real>(most[at]));
        c.sums.add(&sum[at], &leaf, 1, c.z.blocks, "a sum of exponentials");
      });
    }
    const vector<Real> all = c.summed(sum);
    double loss = 0;
    c.each_leaf([&](index_t begin, index_t n) {
      Real leaf = 0;
      for (index_t r = begin; r < begin + n; ++r) {
        const Real of_row = all[static_cast<std::size_t>(r)];
        leaf += std::log(of_row) - all[static_cast<std::size_t>(r + rows)];
        for (index_t v = 0; v < V; ++v) row(p_, r, V)[v] /= of_row;
      }
      c.sums.add(&loss, &leaf, 1, c.z.batch, "the loss");
    });
    return loss;
  }
  /// dx of what it read.
  vector<Real> backward(context<Real>& c, const slot& norm, const slot& words, index_t first,
                        const std::vector<tokens>& text) {
    for (index_t r = 0; r < c.rows(); ++r) {
      const index_t target = target_of(c, text, r) - first;
      if (target >= 0 && target < words.rows) row(p_, r, words.rows)[target] -= 1;
    }
    weight_gradient(c, words, p_, xn_);
    vector<double> dxn = zeros<double>(c.rows() * c.z.hidden);
    linear_back_sum(c, words, c.z.vocabulary / c.z.blocks, p_.data(), dxn, c.z.blocks);
    return norm_back(c, norm, norm_, c.summed(dxn).data());
  }

 private:
  static index_t target_of(const context<Real>& c, const std::vector<tokens>& text, index_t r) {
    return text[static_cast<std::size_t>(r / c.z.length)][static_cast<std::size_t>(r % c.z.length + 1)];
  }
  normed<Real> norm_;
  vector<Real> xn_, p_;
};

}  // namespace trainer
