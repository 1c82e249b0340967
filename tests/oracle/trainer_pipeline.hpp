// SPDX-License-Identifier: Apache-2.0
//
// The oracle of trainers' layouts, part 2: which layers, and which prediction layers, a chunk of the pipeline has.
// Builds on trainer_sets.hpp.
#pragma once

#include "trainer_sets.hpp"

#include <optional>
#include <string>
#include <vector>

namespace oracle::trainer {

// What a LAYOUT says of its pipeline; what it does not name has no value.
struct pipeline_keys {
  long pp = 1;
  std::optional<long> vpp, first, last;
  std::optional<std::string> split, string;
};

// Chunk k is chunk k / pp of stage k mod pp.
struct pipeline {
  long pp = 1, vpp = 1;
  intervals layers;      // of chunk k; not a set: may be empty
  long prediction = -1;  // the chunk that has the prediction layers; -1: there are none

  long chunks() const { return pp * vpp; }
  long stage_of(long chunk) const { return chunk % pp; }
};

// So many layers for each chunk in turn.
inline intervals in_turn(const numbers& layers_of_chunk) {
  intervals list;
  long next = 0;
  for (long n : layers_of_chunk) {
    list.emplace_back(next, next + n);
    next += n;
  }
  return list;
}

// ---- string=

inline bool digit(const std::string& s, std::size_t i) { return i < s.size() && s[i] >= '0' && s[i] <= '9'; }

// The number that begins at i; i is moved past it.
inline long count_at(const std::string& s, std::size_t& i) {
  long n = 0;
  for (; digit(s, i); ++i) {
    n = 10 * n + (s[i] - '0');
    must(n <= 100000, "The layout string repeats something too often.");
  }
  return n;
}

inline void repeat(std::string& out, const std::string& what, long n) {
  must(length(out) + length(what) * n <= 1000000, "The layout string is too long.");
  for (long i = 0; i < n; ++i) out += what;
}

// First every (X)*n with X not empty and without parentheses becomes n times X ...
inline std::string groups_repeated(const std::string& s) {
  std::string out;
  for (std::size_t i = 0; i < s.size();) {
    const std::size_t close = s[i] == '(' ? s.find_first_of("()", i + 1) : std::string::npos;
    if (close != std::string::npos && s[close] == ')' && close > i + 1 && close + 1 < s.size() && s[close + 1] == '*' &&
        digit(s, close + 2)) {
      std::size_t past = close + 2;
      const long n = count_at(s, past);
      repeat(out, s.substr(i + 1, close - i - 1), n);
      i = past;
    } else {
      out += s[i++];
    }
  }
  return out;
}

// ... then every c*n (one character) n times c.
inline std::string characters_repeated(const std::string& s) {
  std::string out;
  for (std::size_t i = 0; i < s.size();) {
    if (i + 1 < s.size() && s[i + 1] == '*' && digit(s, i + 2)) {
      std::size_t past = i + 2;
      const long n = count_at(s, past);
      repeat(out, std::string(1, s[i]), n);
      i = past;
    } else {
      out += s[i++];
    }
  }
  return out;
}

// `|` ends a chunk; what follows the last one is a chunk too.
inline std::vector<std::string> chunks_of(const std::string& letters) {
  std::vector<std::string> list(1);
  for (char c : letters)
    if (c == '|') list.emplace_back();
    else list.back() += c;
  return list;
}

inline pipeline pipeline_of_string(const pipeline_keys& keys, long layers, long predictions) {
  const std::string expanded = characters_repeated(groups_repeated(*keys.string));
  must(expanded.find_first_not_of("EtmL|") == std::string::npos,
       "The layout string has a character that is no E t m L |.");
  const std::vector<std::string> chunks = chunks_of(expanded);
  must(keys.pp >= 1 && length(chunks) % keys.pp == 0,
       "The number of chunks of the layout string is no multiple of pp.");

  pipeline p{.pp = keys.pp, .vpp = length(chunks) / keys.pp, .layers = {}};
  must(!keys.vpp || *keys.vpp == p.vpp, "vpp is named and not that of the layout string.");

  std::string letters;
  numbers layers_of_chunk;
  for (long k = 0; k < length(chunks); ++k) {
    const std::string& text = chunks[at(k)];
    letters += text;
    layers_of_chunk.push_back(std::count(text.begin(), text.end(), 't'));
    if (std::count(text.begin(), text.end(), 'm') == 0) continue;
    must(p.prediction == -1, "The prediction layers of the layout string are not in one chunk.");
    must(k / p.pp == p.vpp - 1, "The chunk of the prediction layers is not its stage's last.");
    p.prediction = k;
  }
  const auto number_of = [&](char c) { return std::count(letters.begin(), letters.end(), c); };
  must(number_of('E') == 1 && letters.front() == 'E', "The layout string has not exactly one E, first.");
  must(number_of('L') == 1 && letters.back() == 'L', "The layout string has not exactly one L, last.");
  must(number_of('t') == layers, "The layout string has not as many t as the model has layers.");
  must(number_of('m') == predictions, "The layout string has not as many m as the model has prediction layers.");
  must(predictions == 0 || letters.find('t', letters.find('m')) == std::string::npos, "A t stands after an m.");
  p.layers = in_turn(layers_of_chunk);
  return p;
}

// ---- every other way

// Layers of every stage, where first= or last= is named.
inline numbers stages_of_ends(const pipeline_keys& keys, long layers) {
  const long first = keys.first.value_or(0), last = keys.last.value_or(0);
  must(!keys.first || first >= 1, "first is below 1.");
  must(!keys.last || last >= 1, "last is below 1.");
  const long others = keys.pp - (keys.first ? 1 : 0) - (keys.last ? 1 : 0);
  const long rest = layers - first - last;
  must(others >= 0, "One stage cannot be the first and the last with a number each.");
  if (others == 0) must(rest == 0, "first and last are not all layers, and there is no other stage.");
  else must(rest >= others && rest % others == 0, "The other stages cannot share the rest equally, one each at least.");

  numbers stages;
  for (long p = 0; p < keys.pp; ++p)
    stages.push_back(keys.first && p == 0 ? first : keys.last && p == keys.pp - 1 ? last : rest / others);
  return stages;
}

inline pipeline pipeline_of(const pipeline_keys& keys, long layers, long predictions) {
  must(keys.pp >= 1, "pp is below 1.");
  const bool ends = keys.first || keys.last;
  if (keys.string) {
    must(!keys.split && !ends, "string stands beside split, first or last.");
    pipeline p = pipeline_of_string(keys, layers, predictions);
    must(p.vpp == 1 || p.pp > 1, "vpp above 1 needs pp above 1.");
    return p;
  }
  pipeline p{.pp = keys.pp, .vpp = keys.vpp.value_or(1), .layers = {}};
  must(p.vpp >= 1, "vpp is below 1.");
  must(p.vpp == 1 || p.pp > 1, "vpp above 1 needs pp above 1.");
  must(p.pp < 100000 && p.vpp < 100000, "There are too many chunks.");
  if (predictions > 0) p.prediction = p.chunks() - 1;

  const std::string split = keys.split.value_or("even");
  numbers layers_of_chunk;
  if (ends) {
    must(split == "even", "first or last stands beside another split.");
    must(p.pp != 2 || p.vpp == 1 || !keys.first || !keys.last, "first, last, pp=2 and vpp above 1 at once.");
    const numbers stages = stages_of_ends(keys, layers);
    for (long n : stages) must(n % p.vpp == 0, "vpp does not divide the layers of a stage.");
    for (long k = 0; k < p.chunks(); ++k) layers_of_chunk.push_back(stages[at(p.stage_of(k))] / p.vpp);
  } else if (split == "spread") {
    must(p.vpp == 1, "split=spread has vpp=1.");
    for (long k = 0; k < p.pp; ++k) layers_of_chunk.push_back(layers / p.pp + (k < layers % p.pp ? 1 : 0));
  } else {
    must(split == "even" || split == "account" || split == "account_embedding" || split == "account_loss",
         "The split " + split + " is unknown.");
    const long embedding = split == "account" || split == "account_embedding" ? 1 : 0;
    const long loss = split == "account" || split == "account_loss" ? 1 : 0;
    const long all = layers + embedding + loss;
    must(all % p.chunks() == 0, "pp*vpp does not divide what the split counts.");
    layers_of_chunk.assign(at(p.chunks()), all / p.chunks());
    layers_of_chunk.front() -= embedding;
    layers_of_chunk.back() -= loss;
    must(layers_of_chunk.front() >= 0, "Nothing is left to be short of.");
  }
  p.layers = in_turn(layers_of_chunk);
  return p;
}

}  // namespace oracle::trainer
