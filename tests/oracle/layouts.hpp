// SPDX-License-Identifier: Apache-2.0
//
// The oracle, first part: the model, the text of a layout and its legality, the ranks, the pipeline.
// Written from the contract alone, to be read beside it. It shares no code with the library.
#pragma once

#include <charconv>
#include <cstddef>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace oracle {

struct model {
  long layers = 0, hidden = 0, heads = 0, groups = 0, head_dim = 0, ffn = 0, vocab = 0;
  bool tied = false, qk_norm = false;
  long experts = 0, expert_ffn = 0;
  std::vector<bool> moe;  // moe[l]: layer l is MoE; may be shorter than the layers, or empty
};

struct layout {
  long tp = 1, cp = 1, pp = 1, vpp = 1, dp = 1, ep = 1, etp = 1, zero = 0;
  std::string split = "even";
  long bucket = -1;  // -1: none
  long edp = 1;
  long world = 1;

  bool operator==(const layout&) const = default;
};

struct coordinates {
  long tp, cp, dp, pp, etp, ep, edp;
};

// What the contract refuses; what() is one sentence.
struct illegal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ---- small helpers ---------------------------------------------------------------------------

inline std::size_t index(long i) { return static_cast<std::size_t>(i); }

template <class Container>
long length(const Container& c) {
  return static_cast<long>(c.size());
}

inline long product(const std::vector<long>& shape) {
  long n = 1;
  for (long extent : shape) n *= extent;
  return n;
}

inline bool is_moe(const model& m, long layer) { return layer < length(m.moe) && m.moe[index(layer)]; }

inline bool has_moe_layer(const model& m) {
  for (long l = 0; l < m.layers; ++l)
    if (is_moe(m, l)) return true;
  return false;
}

inline bool has_dense_layer(const model& m) {
  for (long l = 0; l < m.layers; ++l)
    if (!is_moe(m, l)) return true;
  return false;
}

inline long qkv_rows(const model& m) { return (m.heads + 2 * m.groups) * m.head_dim; }

// ---- the text of a layout --------------------------------------------------------------------

// "" is no item at all; otherwise items are separated by commas and each is key=value.
inline std::map<std::string, std::string> split_items(std::string_view text) {
  std::map<std::string, std::string> items;
  if (text.empty()) return items;
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) throw illegal("'" + std::string(item) + "' is not of the form key=value.");
    const std::string key(item.substr(0, equals));
    if (!items.emplace(key, std::string(item.substr(equals + 1))).second)
      throw illegal("The key " + key + " is repeated.");
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

// A decimal number without sign, blank or anything else around it.
inline long number(const std::string& key, const std::string& text) {
  long value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || text.front() == '-' || stop != end || error != std::errc{})
    throw illegal("The value '" + text + "' of " + key + " is no number.");
  return value;
}

inline long multiply(long a, long b)  // both at least 1
{
  if (a > std::numeric_limits<long>::max() / b) throw illegal("The world is too large to count.");
  return a * b;
}

inline void must(bool condition, const std::string& what) {
  if (!condition) throw illegal(what);
}

inline layout parse(const model& m, std::string_view text) {
  layout l;
  bool etp_named = false;
  for (const auto& [key, value] : split_items(text)) {
    if (key == "tp") l.tp = number(key, value);
    else if (key == "cp") l.cp = number(key, value);
    else if (key == "pp") l.pp = number(key, value);
    else if (key == "vpp") l.vpp = number(key, value);
    else if (key == "dp") l.dp = number(key, value);
    else if (key == "ep") l.ep = number(key, value);
    else if (key == "etp") {
      l.etp = number(key, value);
      etp_named = true;
    } else if (key == "zero") l.zero = number(key, value);
    else if (key == "split") l.split = value;
    else if (key == "bucket") l.bucket = number(key, value);
    else throw illegal("The key '" + key + "' is unknown.");
  }
  if (!etp_named) l.etp = l.ep > 1 ? 1 : l.tp;

  must(l.tp >= 1 && l.cp >= 1 && l.pp >= 1 && l.vpp >= 1 && l.dp >= 1 && l.ep >= 1 && l.etp >= 1,
       "A degree is below 1.");
  must(l.zero == 0 || l.zero == 1, "zero is neither 0 nor 1.");

  // tensor parallelism
  must(m.heads % l.tp == 0, "tp does not divide the heads.");
  must(m.vocab % l.tp == 0, "tp does not divide the vocabulary.");
  must(m.groups % l.tp == 0 || l.tp % m.groups == 0, "Neither of tp and the query groups divides the other.");
  must(qkv_rows(m) % l.tp == 0, "tp does not divide the rows of linear_qkv.");
  if (has_dense_layer(m)) must(m.ffn % l.tp == 0, "tp does not divide the intermediate size.");

  // experts
  if (m.experts == 0) must(l.ep == 1 && !etp_named, "ep above 1 or etp is named without experts.");
  if (m.experts > 0) must(m.experts % l.ep == 0, "ep does not divide the experts.");
  if (has_moe_layer(m)) must(m.expert_ffn % l.etp == 0, "etp does not divide the intermediate size of the experts.");

  // the world
  const long stage = multiply(multiply(l.tp, l.cp), l.dp);
  const long expert_stage = multiply(l.etp, l.ep);
  must(stage % expert_stage == 0, "etp*ep does not divide tp*cp*dp.");
  l.edp = stage / expert_stage;
  l.world = multiply(stage, l.pp);

  // the pipeline
  must(l.vpp == 1 || l.pp > 1, "vpp above 1 needs pp above 1.");
  const long chunks = multiply(l.pp, l.vpp);
  if (l.split == "even") must(m.layers % chunks == 0, "pp*vpp does not divide the layers.");
  else if (l.split == "account") must((m.layers + 2) % chunks == 0, "pp*vpp does not divide the layers and two.");
  else if (l.split == "spread") must(l.vpp == 1, "split=spread needs vpp=1.");
  else throw illegal("The split '" + l.split + "' is unknown.");
  return l;
}

// ---- ranks -----------------------------------------------------------------------------------

// rank = tp + TP*(cp + CP*(dp + DP*pp)) = etp + ETP*(ep + EP*(edp + EDP*pp))
inline coordinates coordinates_of(const layout& l, long rank) {
  if (rank < 0 || rank >= l.world) throw std::out_of_range("no such rank");
  coordinates c{};
  c.tp = rank % l.tp;
  c.cp = rank / l.tp % l.cp;
  c.dp = rank / l.tp / l.cp % l.dp;
  c.pp = rank / l.tp / l.cp / l.dp;
  c.etp = rank % l.etp;
  c.ep = rank / l.etp % l.ep;
  c.edp = rank / l.etp / l.ep % l.edp;
  return c;
}

// ---- pipeline --------------------------------------------------------------------------------

// The layers [first, past the last) of one model chunk of one pipeline rank.
inline std::pair<long, long> layers_of_chunk(long layers, const layout& l, long pp, long chunk) {
  if (l.split == "spread") {
    long first = 0;
    for (long p = 0; p < pp; ++p) first += layers / l.pp + (p < layers % l.pp ? 1 : 0);
    return {first, first + layers / l.pp + (pp < layers % l.pp ? 1 : 0)};
  }
  // Hand out the slots in the order in which a batch runs through the chunks. With split=account the embedding
  // takes the first slot of all and the loss the last one.
  const bool account = l.split == "account";
  const long slots_per_chunk = (layers + (account ? 2 : 0)) / (l.pp * l.vpp);
  const long first_slot = (chunk * l.pp + pp) * slots_per_chunk;
  long first = -1, past = -1;
  for (long slot = first_slot; slot < first_slot + slots_per_chunk; ++slot) {
    const long layer = account ? slot - 1 : slot;
    if (layer < 0 || layer >= layers) continue;  // the embedding or the loss
    if (first < 0) first = layer;
    past = layer + 1;
  }
  if (first < 0) return {0, 0};  // a chunk without layers
  return {first, past};
}

inline bool has_embedding(const layout&, long pp, long chunk) { return pp == 0 && chunk == 0; }
inline bool has_output(const layout& l, long pp, long chunk) { return pp == l.pp - 1 && chunk == l.vpp - 1; }

}  // namespace oracle
