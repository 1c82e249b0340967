// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

#include <reshard/io/arguments.hpp>
#include <reshard/io/hf_config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

namespace train {

const char* const usage =
    R"(tools/train [OPTION..]: trains a small GPT under layouts, and compares it with one device that never changes.
Without an option: 120 steps through ten switches.
  --model dense|moe|FILE      FILE: a config.json of Llama, Qwen3 or Qwen3-MoE
  --steps N, --total N        when to end, and where the rate's cosine ends
  --layout LAYOUT[@DEVICES]   before the first switch: tp=2,pp=2,dp=2,zero=1@0-7
  --switch STEP:LAYOUT[@DEVICES]  before that step; may be repeated
  --transport threads|sockets|mpi, --sums exact|free
  --batch N, --length N, --dropout P, --seed N, --text FILE
  --budget SIZE               memory beyond the larger state in a switch
  --svg FILE, --dump DIR, --json
  --damage KIND@STEP          bit:STATE:N, swap, twice, step, stale, dropout, moment
  --restart DIR               the only switch beside a restart by way of files there)";

namespace {

/// What the README shows: 8 devices, then 6, 7 and 8, ten times another layout.
const char* const shown[] = {
    "12:tp=3,pp=2,zero=1@1-6",
    "24:tp=2,dp=4,zero=1@7,6,5,4,3,2,1,0",
    "36:dp=7,zero=1@0-6",
    "48:pp=3,tp=2@2-7",
    "60:dp=8,zero=1",
    "72:tp=2,pp=2,dp=2,zero=1@0,2,4,6,1,3,5,7",
    "84:tp=6@2-7",
    "96:pp=2,dp=4,split=even",
    "102:dp=7@1-7",
    "108:tp=2,pp=3,zero=1@5,4,3,2,1,0",
};

double real_number(const std::string& key, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) refuse(key, ": '", text, "' is not a number");
  return value;
}
index_t number(const std::string& key, const std::string& text, index_t fewest) {
  const index_t value = io::detail::digits_of(key, text);
  if (value < fewest) refuse(key, " is ", value, "; at least ", fewest, " is legal");
  return value;
}
std::string one_of(const std::string& key, const std::string& text, std::initializer_list<const char*> legal) {
  std::string list;
  for (const char* const word : legal) {
    if (text == word) return text;
    list += list.empty() ? word : std::string(", ") + word;
  }
  refuse(key, ": '", text, "' is none of ", list);
}

damage_asked damage_of(const std::string& text) {
  const std::size_t at = text.rfind('@');
  if (at == text.npos) refuse("--damage: '", text, "' is not of the form KIND@STEP");
  return {text.substr(0, at), number("--damage", text.substr(at + 1), 0)};
}

/// Reads one key and its value.
void read_key(options& o, const std::string& key, const std::string& value) {
  if (key == "--model") o.model = value;
  else if (key == "--steps") o.steps = number(key, value, 1);
  else if (key == "--total") o.total = number(key, value, 1);
  else if (key == "--layout") o.layout = value;
  else if (key == "--switch") o.switches.push_back(value);
  else if (key == "--transport") o.transport = one_of(key, value, {"threads", "sockets", "mpi"});
  else if (key == "--sums") o.exact = one_of(key, value, {"exact", "free"}) == "exact";
  else if (key == "--batch") o.batch = number(key, value, 1);
  else if (key == "--length") o.length = number(key, value, 2);
  else if (key == "--dropout") o.dropout = real_number(key, value);
  else if (key == "--seed") o.seed = io::detail::unsigned_digits_of(key, value);
  else if (key == "--text") o.texts.push_back(value);
  else if (key == "--budget") o.budget = io::parse_bytes(key, value);
  else if (key == "--svg") o.svg = value;
  else if (key == "--dump") o.dump = value;
  else if (key == "--damage") o.damaged = damage_of(value);
  else if (key == "--restart") o.restart = value;
  else if (key == "--restarted") o.restarted = number(key, value, 0);
  else refuse("'", key, "' is no option of tools/train");
}

model model_of(const options& o) {
  transformer t{.name = "dense",
                .layers = 6,
                .hidden = 96,
                .heads = 12,
                .groups = 6,
                .head_dim = 8,
                .ffn = 288,
                .vocabulary = 264};
  if (o.model == "moe") t.name = "moe", t.experts = 12, t.expert_ffn = 96;
  if (o.model == "dense" || o.model == "moe") return make_transformer(t);
  return io::read_config(o.model);
}

/// "LAYOUT[@DEVICES]" from a step on.
phase phase_of(index_t step, const std::string& text, const model& m, const sizes& z) {
  const std::size_t at = text.rfind('@');
  const std::string layout = text.substr(0, at);
  phase result{step, text, space(m, parse_degrees(layout)), {}};
  require_trainable(result.layout, z);
  const rank_t ranks = result.layout.ranks();
  if (ranks > 64)
    refuse("layout ", layout, " has ", ranks, " ranks; each is a thread or a process here, and 64 are legal");
  if (at != text.npos) result.devices = io::parse_device_list("@", text.substr(at + 1), ranks);
  else
    for (rank_t r = 0; r < ranks; ++r) result.devices.push_back(r);
  for (const rank_t d : result.devices)
    if (d >= 64) refuse("device ", d, " of layout ", text, "; devices are 0 to 63");
  return result;
}

std::string bytes_of_files(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) {
    std::ifstream file(name, std::ios::binary);
    if (!file) refuse("--text: ", name, " cannot be read");
    std::ostringstream text;
    text << file.rdbuf();
    all += text.str();
  }
  if (!names.empty() && all.empty()) refuse("--text: no byte in ", names.size(), " files");
  return all;
}

}  // namespace

options read_options(const std::vector<std::string>& words) {
  options o;
  bool asked = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--json") {
      o.json = true;
      continue;
    }
    if (!words[i].starts_with("--")) refuse("'", words[i], "' is no option of tools/train");
    if (i + 1 == words.size()) refuse(words[i], " needs a value");
    read_key(o, words[i], words[i + 1]);
    asked = asked || (words[i] != "--svg" && words[i] != "--transport");
    ++i;
  }
  if (o.total == 0) o.total = o.steps;
  if (o.dropout < 0 || o.dropout >= 1 || !std::isfinite(o.dropout))
    refuse("--dropout: ", io::detail::decimal_text(o.dropout, 3), "; it is 0 to below 1");
  if (o.total < o.steps) refuse("--total ", o.total, " is less than the ", o.steps, " steps");
  o.demonstration = !asked && !o.json;
  if (!asked) {
    o.layout = "tp=2,pp=2,dp=2,zero=1";
    o.switches.assign(std::begin(shown), std::end(shown));
  }
  return o;
}

job job_of(const options& o) {
  const model m = model_of(o);
  job all{sizes_of(m, o.batch, o.length),
          {o.seed, o.dropout, o.total, o.exact},
          dataset(o.seed, o.length, bytes_of_files(o.texts)),
          {},
          o.steps,
          o.budget,
          {},
          {}};
  all.phases.push_back(phase_of(0, o.layout, m, all.z));
  for (const std::string& text : o.switches) {
    const std::size_t colon = text.find(':');
    if (colon == text.npos) refuse("--switch: '", text, "' is not of the form STEP:LAYOUT");
    const index_t step = number("--switch", text.substr(0, colon), 1);
    if (step >= o.steps || step <= all.phases.back().step)
      refuse("--switch ", text, ": its step is to be above ", all.phases.back().step, " and below ", o.steps);
    all.phases.push_back(phase_of(step, text.substr(colon + 1), m, all.z));
  }
  return all;
}

job undisturbed(const job& all) {
  job alone = all;
  alone.phases.assign(1, {0, "", space(all.phases[0].layout.model(), degrees{}), {0}});
  alone.bad = {}, alone.after_switch = nullptr;
  return alone;
}

}  // namespace train
