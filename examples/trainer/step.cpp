// SPDX-License-Identifier: Apache-2.0
#include "step.hpp"

#include <numeric>

namespace trainer {

sizes sizes_of(const model& m, index_t batch, index_t length) {
  const dimensions& s = m.shape;
  if (s.tied) refuse("model ", m.name, ": its embeddings are tied; this trainer's are not");
  if (s.groups == 0 || s.predictions > 0 || s.shared_ffn > 0)
    refuse("model ", m.name, ": this trainer has no latent attention, prediction layers or shared experts");
  for (int f = 0; f < m.families; ++f)
    if (m[f].name.ends_with("bias") || m[f].name.find("position") != m[f].name.npos)
      refuse("model ", m.name, ": this trainer has no ", m[f].name);
  if (s.vocabulary < 256) refuse("model ", m.name, ": a vocabulary of ", s.vocabulary, "; tokens are bytes, 256");
  if (s.head_dim % 2 != 0) refuse("model ", m.name, ": heads of ", s.head_dim, "; RoPE turns pairs");
  if (s.experts == 1) refuse("model ", m.name, ": 1 expert; a token has 2");
  sizes z{s.hidden, s.heads, s.groups, s.head_dim, s.ffn, s.vocabulary, s.experts, s.expert_ffn, s.layers};
  z.blocks = std::gcd(s.groups, std::gcd(s.ffn, s.vocabulary));
  z.batch = batch, z.length = length;
  return z;
}

void require_trainable(const space& layout, const sizes& z) {
  const degrees& d = layout.degrees();
  const auto only = [](const char* key, index_t value, index_t wanted) {
    if (value != wanted) refuse("the trainer has no ", key, "=", value, "; it trains with ", key, "=", wanted);
  };
  only("cp", d.cp, 1);
  only("vpp", d.vpp, 1);
  only("instances", d.instances, 1);
  if (d.shard != shard_by::buffers) refuse("the trainer has no shard=rows; ZeRO's states lie in buffers");
  if (d.zero > 1) refuse("the trainer has no zero=", d.zero, "; it trains with zero=0 and zero=1");
  if (d.pad > 0) refuse("the trainer has no pad=", d.pad, "; the vocabulary is not padded");
  if (!(d.order == rank_order{})) refuse("the trainer orders ranks as tp-cp-ep-dp-pp, and no other way");
  if (z.experts > 0 && d.expert_tp() != 1)
    refuse("experts are whole on a rank here, and etp=", d.expert_tp(),
           d.etp == 0 ? " (tp's, since it is not named)" : "", " cuts them; name etp=1");
  if (z.blocks % d.tp != 0)
    refuse("tp=", d.tp, " divides the ", z.blocks,
           " runs that sums have as leaves into parts; it must divide their number");
  if (z.batch < d.dp)
    refuse("a batch of ", z.batch, " samples for dp=", d.dp, "; each data-parallel rank has at least 1");
}

groups groups::make(world& of, const space& layout, rank_t rank, const std::vector<rank_t>& devices) {
  const auto group_of = [&](const std::vector<rank_t>& ranks) -> std::unique_ptr<group> {
    if (ranks.size() == 1) return std::make_unique<alone>();
    std::vector<rank_t> members;
    for (const rank_t r : ranks) members.push_back(devices[static_cast<std::size_t>(r)]);
    return of.make(members);
  };
  const mesh &dense = layout.mesh_for(mesh_kind::dense), &expert = layout.mesh_for(mesh_kind::expert);
  groups g;
  g.tensor = group_of(ranks_with(dense, mesh_axis::tensor, rank));
  g.data = group_of(ranks_with(dense, mesh_axis::data, rank));
  g.expert_data = group_of(ranks_with(expert, mesh_axis::data, rank));
  g.pipeline = group_of(ranks_with(dense, mesh_axis::pipeline, rank));
  std::vector<rank_t> block, every(static_cast<std::size_t>(layout.ranks()));
  const index_t size = std::lcm(layout.degrees().tp, layout.degrees().ep), first = rank / size * size;
  for (index_t i = 0; i < size; ++i) block.push_back(first + i);
  g.experts = group_of(block);
  std::iota(every.begin(), every.end(), rank_t{0});
  g.all = group_of(every);
  return g;
}

rank_trainer::rank_trainer(const sizes& z, const settings& set, const dataset& data, rank_state& state, groups& with)
    : data_(data), state_(state), with_(with), turned_(z.length, z.head) {
  c_.z = z, c_.set = set, c_.sums = summing(set.exact), c_.tensor = with_.tensor.get();
  weights_ = zeros<float>(state.elements()), mean_gradient_ = weights_, gradient_ = zeros<double>(state.elements());
  c_.weight = weights_.data(), c_.gradient = gradient_.data();
  find_slots();
  if (state.layout().space().degrees().zero > 0) find_parts();
}

void rank_trainer::find_slots() {
  const space& s = state_.layout().space();
  const index_t stage = s.stage_of(state_.rank());
  const interval mine = s.pipeline().chunk(stage);
  for (index_t l = mine.begin; l < mine.end; ++l) {
    const auto of = [&](const std::string& name) {
      return state_.find("decoder.layers." + std::to_string(l) + "." + name);
    };
    layer_slots at;
    at.number = l;
    at.norm1 = of("self_attention.linear_qkv.layer_norm_weight");
    at.qkv = of("self_attention.linear_qkv.weight");
    at.q_norm = of("self_attention.q_layernorm.weight");
    at.k_norm = of("self_attention.k_layernorm.weight");
    at.proj = of("self_attention.linear_proj.weight");
    at.norm2 = of("mlp.linear_fc1.layer_norm_weight");
    at.fc1 = of("mlp.linear_fc1.weight");
    at.fc2 = of("mlp.linear_fc2.weight");
    at.router = of("mlp.router.weight");
    if (at.router.there()) at.norm2 = of("pre_mlp_layernorm.weight");
    for (index_t e = 0; e < c_.z.experts; ++e)
      if (const slot fc1 = of("mlp.experts.linear_fc1.weight" + std::to_string(e)); fc1.there()) {
        at.expert_fc1.push_back(fc1);
        at.expert_fc2.push_back(of("mlp.experts.linear_fc2.weight" + std::to_string(e)));
      }
    layers_.push_back(at);
  }
  words_ = state_.find("embedding.word_embeddings.weight");
  final_norm_ = state_.find("decoder.final_layernorm.weight");
  out_words_ = state_.find("output_layer.weight");
  first_word_ = c_.z.vocabulary / s.degrees().tp * c_.tensor->rank();
}

void rank_trainer::find_parts() {
  const computed_holding& h = state_.layout();
  for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert})
    for (const rank_t q : ranks_with(h.space().mesh_for(kind), mesh_axis::data, state_.rank())) {
      std::vector<part>& of = parts_[static_cast<int>(kind)].emplace_back();
      each_held(h, q, role::optimizer, [&](int f, const family_box& b) {
        if (h.space().shard_kind(f) != kind) return;
        each_tensor(f, b, [&](const tensor_id& t, const box<3>& where) {
          state_.each_row(t, where, [&](index_t at, std::uint16_t* values, index_t n) {
            of.push_back({at, values, n});
          });
        });
      });
    }
}

void rank_trainer::gradients(serial_cursor at, index_t step, const damage& bad) {
  gather();
  state_.each_param([&](index_t first, const std::uint16_t* values, index_t count) {
    std::transform(values, values + count, weights_.begin() + first, widened);
  });
  std::fill(gradient_.begin(), gradient_.end(), 0);
  loss_ = 0, c_.sums.forget();
  const degrees& d = state_.layout().space().degrees();
  const index_t data_rank = with_.data->rank();
  used_ = at.share(c_.z.batch, data_rank, d.dp);
  // A pipeline has micro-batches, 4 at most; all go forward, then all back, as each keeps its tape until then.
  const index_t batches = d.pp == 1 ? 1 : least(4, ceil_divide(c_.z.batch, d.dp));
  // The data-parallel ranks of this one's group of experts: neighbours, as ranks are ordered.
  const index_t group_ranks = with_.experts->size() / d.tp, group_first = data_rank / group_ranks * group_ranks;
  dropout_by_ = bad.hits(damage::of::dropout, step) ? static_cast<std::uint64_t>(state_.rank() + 1) << 32 : 0;
  std::vector<tape> tapes(static_cast<std::size_t>(batches));
  for (index_t i = 0; i < batches; ++i) {
    tape& t = tapes[static_cast<std::size_t>(i)];
    t.samples = micro_batch(used_, i, batches);
    t.round = {with_.experts.get(), d.tp, d.ep, {}};
    for (index_t u = group_first; u < group_first + group_ranks; ++u)
      t.round.shares.push_back(micro_batch(at.share(c_.z.batch, u, d.dp), i, batches));
    t.layers.resize(layers_.size());
    read(t, step, bad);
    forward(t);
  }
  for (tape& t : tapes) backward(t);
  for (const layer_slots& l : layers_)
    for (const slot& s : {l.q_norm, l.k_norm})  // whole on every rank, and each has the leaves of its own heads
      if (s.there())
        c_.tensor->sum(
            std::span(gradient_).subspan(static_cast<std::size_t>(s.at), static_cast<std::size_t>(s.columns)));
  const std::span<double> all(gradient_);
  const auto dense = static_cast<std::size_t>(state_.dense_elements());
  with_.data->sum(all.first(dense));
  with_.expert_data->sum(all.subspan(dense));
  const double positions = static_cast<double>(c_.z.batch * c_.z.length);
  for (std::size_t i = 0; i < gradient_.size(); ++i) mean_gradient_[i] = static_cast<float>(gradient_[i] / positions);
}

void rank_trainer::read(tape& t, index_t step, const damage& bad) const {
  if (!first_stage() && !last_stage()) return;
  for (index_t n = t.samples.begin; n < t.samples.end; ++n) {
    const index_t in_batch = n % c_.z.batch;  // two samples of the middle, where any are
    index_t used = n;
    if (bad.hits(damage::of::swap, step) && in_batch / 2 == c_.z.batch / 4) used = n + (in_batch % 2 == 0 ? 1 : -1);
    if (bad.hits(damage::of::twice, step) && in_batch / 2 == c_.z.batch / 4) used = n - in_batch % 2;
    t.text.push_back(data_.sample(used));
  }
}

void rank_trainer::forward(tape& t) {
  c_.samples = t.samples;
  vector<float> x;
  if (first_stage()) x = embed(c_, words_, first_word_, t.text);
  else {
    x = zeros<float>(c_.rows() * c_.z.hidden);
    with_.pipeline->receive(with_.pipeline->rank() - 1, std::as_writable_bytes(std::span(x)));
  }
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const layer_slots& at = layers_[l];
    layer_tape& of = t.layers[l];
    const auto site = static_cast<std::uint64_t>(2 * at.number);
    dropout<float>{c_, site, dropout_by_}.add(of.attend.forward(c_, at, turned_, x), x);
    of.xn = of.norm2.forward(x.data(), c_.of(at.norm2), c_.rows(), c_.z.hidden);
    dropout<float>{c_, site + 1, dropout_by_}.add(
        at.router.there() ? of.mix.forward(c_, at, t.round, of.xn) : of.feed.forward(c_, at, of.xn), x);
  }
  if (last_stage()) loss_ += t.out.forward(c_, final_norm_, out_words_, first_word_, t.text, x);
  else with_.pipeline->send(with_.pipeline->rank() + 1, std::as_bytes(std::span(x)));
}

void rank_trainer::backward(tape& t) {
  c_.samples = t.samples;
  vector<float> dx;
  if (last_stage()) dx = t.out.backward(c_, final_norm_, out_words_, first_word_, t.text);
  else {
    dx = zeros<float>(c_.rows() * c_.z.hidden);
    with_.pipeline->receive(with_.pipeline->rank() + 1, std::as_writable_bytes(std::span(dx)));
  }
  const auto add = [&](const vector<float>& more) {
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += more[i];
  };
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const layer_slots& at = layers_[l];
    layer_tape& of = t.layers[l];
    const auto site = static_cast<std::uint64_t>(2 * at.number);
    const vector<float> d = dropout<float>{c_, site + 1, dropout_by_}.back(dx);
    const vector<float> dxn =
        at.router.there() ? of.mix.backward(c_, at, t.round, of.xn, d) : of.feed.backward(c_, at, of.xn, d);
    add(norm_back(c_, at.norm2, of.norm2, dxn.data()));
    add(of.attend.backward(c_, at, turned_, dropout<float>{c_, site, dropout_by_}.back(dx)));
  }
  if (first_stage()) embed_back(c_, words_, first_word_, t.text, dx);
  else with_.pipeline->send(with_.pipeline->rank() - 1, std::as_bytes(std::span(dx)));
}

void rank_trainer::refuse_beyond(const char* mine) {
  const std::string_view of = mine != nullptr ? mine : "";
  for (const bytes name : with_.all->exchange(std::as_bytes(std::span(of))))
    if (!name.empty())
      throw range_left("a leaf of " + std::string(reinterpret_cast<const char*>(name.data()), name.size()) +
                       " is beyond what its sum may have, or no number; sums would depend on the layout");
}

scalars rank_trainer::scalar() {
  constexpr std::size_t first_sample = 4;  // behind the loss, two sums of squares, and whether a sum left its range
  const auto ranks = static_cast<std::size_t>(with_.data->size());
  const double positions = static_cast<double>(c_.z.batch * c_.z.length);
  sum_of_squares squares;
  double free = 0;
  for (const run& r : state_.runs())
    for (index_t i = r.at; r.counted && i < r.at + r.count; ++i) {
      const float g = mean_gradient_[static_cast<std::size_t>(i)];
      if (c_.set.exact) squares.add(g);
      else free += static_cast<double>(g * g);
    }
  const char* const beyond = c_.sums.beyond();
  std::vector<double> all(first_sample);
  all[0] = with_.tensor->rank() == 0 && last_stage() ? loss_ : 0;
  all[1] = squares.whole + free, all[2] = squares.rest;
  all[3] = beyond != nullptr ? 1 : 0;
  all.resize(first_sample + 2 * ranks);  // begin and end of each data-parallel rank's
  if (with_.tensor->rank() == 0 && first_stage()) {
    const auto at = first_sample + 2 * static_cast<std::size_t>(with_.data->rank());
    all[at] = static_cast<double>(used_.begin), all[at + 1] = static_cast<double>(used_.end);
  }
  with_.all->sum(all);
  if (all[3] > 0) refuse_beyond(beyond);
  squares = {all[1], all[2]};
  if (!squares.in_range())
    throw range_left("the sum of the norm's squares, " + std::to_string(squares.total()) +
                     ", left the range in which it does not depend on the layout");
  scalars result{all[0] / positions, static_cast<float>(std::sqrt(squares.total())), {}};
  for (std::size_t r = 0; r < ranks; ++r)
    result.samples.push_back(
        {static_cast<index_t>(all[first_sample + 2 * r]), static_cast<index_t>(all[first_sample + 1 + 2 * r])});
  return result;
}

void rank_trainer::update(index_t step, float norm, const damage& bad) {
  const adamw rule(step, c_.set.total, norm, bad.hits(damage::of::bias_step, step) ? 1 : 0);
  for (const run& r : state_.runs()) rule.update(r, mean_gradient_.data());
  parted_ = !parts_[0].empty();
}

void rank_trainer::gather() {
  if (!std::exchange(parted_, false)) return;
  try {
    gather_over(*with_.data, parts_[0]);
    gather_over(*with_.expert_data, parts_[1]);
  } catch (...) {
    parted_ = true;  // nothing of the version is lost: the parts are made again from those that were updated
    throw;
  }
}

void rank_trainer::gather_over(group& of, const std::vector<std::vector<part>>& parts) {
  std::vector<std::uint16_t> mine;
  for (const part& p : parts[static_cast<std::size_t>(of.rank())])
    mine.insert(mine.end(), p.values, p.values + p.count);
  const std::vector<bytes> all = of.exchange(std::as_bytes(std::span(mine)));
  for (std::size_t q = 0; q < all.size(); ++q) {
    if (static_cast<int>(q) == of.rank()) continue;
    const std::byte* from = all[q].data();
    for (const part& p : parts[q]) {
      const auto count = static_cast<std::size_t>(p.count) * sizeof *p.values;
      std::memcpy(p.values, from, count);
      from += count;
    }
  }
}

}  // namespace trainer
