// SPDX-License-Identifier: Apache-2.0
// A mixture of experts. Rows go to where their experts are and back in a group of lcm(tp, ep) ranks: position p of it
// is tensor-parallel rank p mod tp of data-parallel rank p / tp, and has the experts of part p mod ep. So the group has
// whole data-parallel ranks, and whole blocks of ep ranks that together have all experts: each sample is computed by
// one block. A rank without a sample takes part with none. Both ways are all-gathers, of which each reads what it
// wants. With tp=2, ep=3, say, six ranks are data-parallel ranks {0 1} {2 3} {4 5} and blocks {0 1 2} {3 4 5}:
// samples 0, 2, 4 .. of all three are computed by the first block, 1, 3, 5 .. by the second.
#pragma once

#include <cstring>

#include "model.hpp"

namespace trainer {

/// Who computes what in one round: sample i of all that the group has, counted over `shares`.
struct expert_round {
  group* ranks = nullptr;
  index_t tp = 1, ep = 1;
  std::vector<interval> shares;  // the samples of each data-parallel rank of the group

  index_t me() const { return ranks->rank(); }
  index_t blocks() const { return ranks->size() / ep; }
  /// Which block computes sample i, and how many it computes before it.
  index_t block_of(index_t i) const { return i % blocks(); }
  index_t place_in_block(index_t i) const { return i / blocks(); }
  /// visit(i, data-parallel rank, number in its share) of every sample
  template <typename Visit>
  void each(Visit&& visit) const {
    index_t i = 0;
    for (index_t u = 0; u < static_cast<index_t>(shares.size()); ++u)
      for (index_t n = 0; n < shares[static_cast<std::size_t>(u)].size(); ++n) visit(i++, u, n);
  }
  /// Which of its tensor-parallel ranks, that all have it, posts sample i of data-parallel rank u.
  index_t poster(index_t i, index_t u) const { return u * tp + i % tp; }
};

/// The two experts of a token, the lower first, and what they weigh: softmax over the two highest logits, ties to the
/// lower.
template <typename Real>
struct choice {
  index_t expert[2];
  Real weight[2];

  choice(const Real* logits, index_t experts) {
    index_t first = 0, second = -1;
    for (index_t e = 1; e < experts; ++e)
      if (logits[e] > logits[first]) first = e;
    for (index_t e = 0; e < experts; ++e)
      if (e != first && (second < 0 || logits[e] > logits[second])) second = e;
    expert[0] = least(first, second), expert[1] = greatest(first, second);
    const Real low = 1 / (1 + std::exp(logits[expert[1]] - logits[expert[0]]));
    weight[0] = low, weight[1] = 1 - low;
  }
};

/// The experts of one layer on one rank.
template <typename Real>
class mixture {
 public:
  /// sum over a token's two experts, ascending, of weight x expert(row); of all tensor-parallel ranks the same.
  vector<Real> forward(context<Real>& c, const layer_slots& l, const expert_round& round, const vector<Real>& xn) {
    route(c, l, xn, mine_);
    const vector<Real> guests = sent_to_blocks(c, round, xn);
    route(c, l, guests, guest_);
    work_.assign(l.expert_fc1.size(), {});
    std::vector<vector<Real>> results;
    for (std::size_t e = 0; e < work_.size(); ++e) {
      work& w = work_[e];
      w.rows = rows_of(c, l, round, static_cast<index_t>(e));
      w.x = gathered(c, guests, w.rows);
      const auto n = static_cast<index_t>(w.rows.size());
      w.fc1 = linear(c, l.expert_fc1[e], w.x.data(), n);
      w.act = gated(w.fc1, n, l.expert_fc2[e].columns);
      results.push_back(linear(c, l.expert_fc2[e], w.act.data(), n));
    }
    returned(c, l, round, results, out_);
    vector<Real> y = zeros<Real>(c.rows() * c.z.hidden);
    for (index_t r = 0; r < c.rows(); ++r) {
      const choice<Real>& of = mine_[static_cast<std::size_t>(r)];
      const Real *const low = row(out_, 2 * r, c.z.hidden), *const high = low + c.z.hidden;
      for (index_t i = 0; i < c.z.hidden; ++i)
        row(y, r, c.z.hidden)[i] = of.weight[0] * low[i] + of.weight[1] * high[i];
    }
    return y;
  }

  vector<Real> backward(context<Real>& c, const layer_slots& l, const expert_round& round, const vector<Real>& xn,
                        const vector<Real>& dy) {
    const index_t H = c.z.hidden;
    const vector<Real> dguests = sent_to_blocks(c, round, dy);
    std::vector<vector<Real>> results;
    for (std::size_t e = 0; e < work_.size(); ++e) {
      const work& w = work_[e];
      const auto n = static_cast<index_t>(w.rows.size());
      vector<Real> d = gathered(c, dguests, w.rows);
      for (index_t r = 0; r < n; ++r) {
        const choice<Real>& of = guest_[static_cast<std::size_t>(w.rows[static_cast<std::size_t>(r)])];
        const Real weight = of.weight[of.expert[0] == first_expert(c, l, round) + static_cast<index_t>(e) ? 0 : 1];
        for (index_t i = 0; i < H; ++i) row(d, r, H)[i] *= weight;
      }
      const vector<Real> dact = linear_back(c, l.expert_fc2[e], d.data(), n);
      const vector<Real> dfc1 = gated_back(w.fc1, dact, n, l.expert_fc2[e].columns);
      leaves(c, l.expert_fc2[e], w, d, w.act);
      leaves(c, l.expert_fc1[e], w, dfc1, w.x);
      results.push_back(linear_back(c, l.expert_fc1[e], dfc1.data(), n));
    }
    vector<Real> parts;
    returned(c, l, round, results, parts);
    return with_router(c, l, xn, dy, parts);
  }

 private:
  struct work {
    std::vector<index_t> rows;  // of the block's samples, ascending
    vector<Real> x, fc1, act;
  };

  static index_t first_expert(const context<Real>&, const layer_slots& l, const expert_round& round) {
    return round.me() % round.ep * static_cast<index_t>(l.expert_fc1.size());
  }
  static void route(context<Real>& c, const layer_slots& l, const vector<Real>& x, std::vector<choice<Real>>& of) {
    const index_t rows = static_cast<index_t>(x.size()) / c.z.hidden;
    const vector<Real> logits = linear(c, l.router, x.data(), rows);
    of.clear();
    for (index_t r = 0; r < rows; ++r) of.emplace_back(row(logits, r, c.z.experts), c.z.experts);
  }
  /// The rows, among those of the block's samples, of one of this rank's experts.
  std::vector<index_t> rows_of(context<Real>& c, const layer_slots& l, const expert_round& round, index_t e) const {
    std::vector<index_t> rows;
    for (index_t r = 0; r < static_cast<index_t>(guest_.size()); ++r)
      for (const index_t chosen : guest_[static_cast<std::size_t>(r)].expert)
        if (chosen == first_expert(c, l, round) + e) rows.push_back(r);
    return rows;
  }
  static vector<Real> gathered(const context<Real>& c, const vector<Real>& from, const std::vector<index_t>& rows) {
    vector<Real> x;
    for (const index_t r : rows) x.insert(x.end(), row(from, r, c.z.hidden), row(from, r, c.z.hidden) + c.z.hidden);
    return x;
  }
  /// The rows of the samples that this rank's block computes, in their order.
  static vector<Real> sent_to_blocks(const context<Real>& c, const expert_round& round, const vector<Real>& x) {
    const index_t elements = c.z.length * c.z.hidden;
    vector<Real> post;
    round.each([&](index_t i, index_t u, index_t n) {
      if (round.poster(i, u) == round.me())
        post.insert(post.end(), x.begin() + n * elements, x.begin() + (n + 1) * elements);
    });
    const std::vector<bytes> all = round.ranks->exchange(std::as_bytes(std::span(post)));
    std::vector<std::size_t> read(all.size());
    vector<Real> mine;
    round.each([&](index_t i, index_t u, index_t) {
      const auto from = static_cast<std::size_t>(round.poster(i, u));
      const std::size_t count = static_cast<std::size_t>(elements) * sizeof(Real),
                        at = std::exchange(read[from], read[from] + count);
      if (round.block_of(i) != round.me() / round.ep) return;
      mine.resize(mine.size() + static_cast<std::size_t>(elements));
      std::memcpy(mine.data() + mine.size() - static_cast<std::size_t>(elements), all[from].data() + at, count);
    });
    return mine;
  }
  /// What experts made of this rank's own rows: row 2 r + k by the k-th expert of token r. Each rank posts a
  /// table of where each sample begins, then its samples' rows by expert.
  void returned(const context<Real>& c, const layer_slots& l, const expert_round& round,
                const std::vector<vector<Real>>& results, vector<Real>& out) const {
    const index_t H = c.z.hidden, samples = static_cast<index_t>(guest_.size()) / c.z.length;
    const std::size_t of_row = static_cast<std::size_t>(H) * sizeof(Real);
    std::vector<std::byte> post(static_cast<std::size_t>(samples) * sizeof(std::size_t));
    std::vector<std::size_t> next(results.size());
    for (index_t n = 0; n < samples; ++n) {
      const std::size_t begin = post.size();
      std::memcpy(post.data() + static_cast<std::size_t>(n) * sizeof begin, &begin, sizeof begin);
      for (std::size_t e = 0; e < results.size(); ++e)
        for (; next[e] < work_[e].rows.size() && work_[e].rows[next[e]] < (n + 1) * c.z.length; ++next[e]) {
          const auto* const from =
              reinterpret_cast<const std::byte*>(row(results[e], static_cast<index_t>(next[e]), H));
          post.insert(post.end(), from, from + of_row);
        }
    }
    const std::vector<bytes> all = round.ranks->exchange(post);
    out = zeros<Real>(c.rows() * 2 * H);
    round.each([&](index_t i, index_t u, index_t n) {
      if (u != round.me() / round.tp) return;
      for (index_t part = 0; part < round.ep; ++part) {
        const bytes from = all[static_cast<std::size_t>(round.block_of(i) * round.ep + part)];
        std::size_t at = 0;
        std::memcpy(&at, from.data() + static_cast<std::size_t>(round.place_in_block(i)) * sizeof at, sizeof at);
        const index_t experts = static_cast<index_t>(l.expert_fc1.size());
        for (index_t e = part * experts; e < (part + 1) * experts; ++e)
          for (index_t r = n * c.z.length; r < (n + 1) * c.z.length; ++r)
            for (index_t k = 0; k < 2; ++k)
              if (mine_[static_cast<std::size_t>(r)].expert[k] == e)
                std::memcpy(row(out, 2 * r + k, H), from.data() + std::exchange(at, at + of_row), of_row);
      }
    });
  }
  /// dw += dy^T x, a leaf for each sample's rows at the expert.
  static void leaves(context<Real>& c, const slot& s, const work& w, const vector<Real>& dy, const vector<Real>& x) {
    const auto rows = static_cast<index_t>(w.rows.size());
    for (index_t first = 0, past = 0; first < rows; first = past) {
      const auto sample = [&](index_t r) { return w.rows[static_cast<std::size_t>(r)] / c.z.length; };
      while (past < rows && (!c.sums.exact() || sample(past) == sample(first))) ++past;
      weight_leaf(c, s, row(dy, first, s.rows), row(x, first, s.columns), past - first);
    }
  }
  /// dx of both experts, the lower first, and of the router: dlogit = w0 w1 (dw0 - dw1) of the lower, - of the higher.
  vector<Real> with_router(context<Real>& c, const layer_slots& l, const vector<Real>& xn, const vector<Real>& dy,
                           const vector<Real>& parts) const {
    const index_t H = c.z.hidden;
    vector<Real> dlogits = zeros<Real>(c.rows() * c.z.experts);
    for (index_t r = 0; r < c.rows(); ++r) {
      const choice<Real>& of = mine_[static_cast<std::size_t>(r)];
      const Real *const low = row(out_, 2 * r, H), *const high = low + H, *const d = row(dy, r, H);
      Real along[2] = {};
      for (index_t i = 0; i < H; ++i) along[0] += d[i] * low[i];
      for (index_t i = 0; i < H; ++i) along[1] += d[i] * high[i];
      const Real of_low = of.weight[0] * of.weight[1] * (along[0] - along[1]);
      row(dlogits, r, c.z.experts)[of.expert[0]] = of_low;
      row(dlogits, r, c.z.experts)[of.expert[1]] = -of_low;
    }
    weight_gradient(c, l.router, dlogits, xn);
    vector<Real> dx = linear_back(c, l.router, dlogits.data(), c.rows());
    for (index_t r = 0; r < c.rows(); ++r)
      for (index_t i = 0; i < H; ++i)
        row(dx, r, H)[i] = (row(parts, 2 * r, H)[i] + row(parts, 2 * r + 1, H)[i]) + row(dx, r, H)[i];
    return dx;
  }

  std::vector<choice<Real>> mine_, guest_;
  std::vector<work> work_;
  vector<Real> out_;
};

}  // namespace trainer
