// SPDX-License-Identifier: Apache-2.0
// reshard: who holds what, and what must move. `reshard --help` says how it is asked.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <reshard/base/refusal.hpp>
#include <reshard/base/version.hpp>
#include <reshard/io/print.hpp>
#include <reshard/io/text_output.hpp>

#include "commands.hpp"

namespace {

using reshard::tool::arguments;

constexpr const char* footer = R"(MODEL is a preset (llama2-7b, llama2-13b, llama2-70b, llama-32b,
qwen3-30b-a3b, qwen3-235b-a22b, gpt3-1.3b, gpt3-2.7b, gpt3-6.7b, deepseek-v3)
or the path of a Hugging Face config.json.
LAYOUT, FROM and TO are like tp=4,pp=8,dp=2,ep=16,zero=1, keys in any order; ''
is one rank. Keys:
  tp cp pp dp ep etp   ranks of each kind of parallelism
  vpp                  chunks of layers per pipeline rank
  split                layers to chunks: even, account, account_embedding,
                       account_loss or spread
  first last           layers of the first and of the last stage
  string               layers as Megatron's layout string: 'Et*3|(tt|)*29m|L'
  zero                 0 to 2; 3 with shard=rows
  shard                what zero cuts: buffers (Megatron) or rows (FSDP2)
  instances            the sharding group in as many runs, each sharded alone
  experts              grouped: with shard=rows, the experts of a layer as one
  bucket busbw         elements of an optimizer bucket; 1: pad it for bandwidth
  order                axes from fastest to slowest: tp-cp-ep-dp-pp
  pad                  the vocabulary's rows, a multiple of pad x tp
  names                megatron, or with shard=rows hf: a checkpoint's tensors
A list of states (--states) is adam (the default), lion, momentum or sgd, each
also with +grad, or name:dtype:level by commas, level 1 to 3 being the least
zero at which it is sharded: param:fp32:3,exp_avg:bf16:1. A state (--state) is
one of the list, optimizer (all of level 1) or all (the default).)";

void add_model(CLI::App& command, arguments& given) {
  command.add_option("MODEL", given.model, "preset or config.json")->required();
  command.add_flag("--json", given.json, "answer a program: JSON on stdout");
  command.add_option("--states", given.states, "the states that the job keeps, see below");
}

/// The layouts of a switch; without TO it is what is asked.
void add_from(CLI::App& command, arguments& given) {
  command.add_option("FROM", given.layout, "the layout that the job has: keys and numbers")->required();
}
void add_sides(CLI::App& command, arguments& given) {
  add_from(command, given);
  command.add_option("TO", given.to, "the layout that it goes to")->required();
}

void add_state(CLI::App& command, arguments& given) {
  command.add_option("--state", given.state, "only this state, or these");
}

/// What asks about a switch from FROM.
void add_switch(CLI::App& command, arguments& given, const char* cluster) {
  add_state(command, given);
  command.add_option("--cluster", given.cluster, cluster);
  command.add_option("--from-devices", given.from_devices, "the device of each rank of FROM, like 0-2,8,12-15");
  command.add_option("--to-devices", given.to_devices, "the device of each rank of TO");
  command.add_option("--lost-devices", given.lost_devices, "devices that are gone, like 3,7 or 4-7");
  command.add_flag("--leave-out-lost", given.leave_out_lost, "plan without what only lost devices held");
  command.add_option("--budget", given.budget, "bytes above max(before, after), like 256MiB");
  command.add_option("--stages", given.stages, "how many stages, at most 4096");
  command.add_flag("--keep-sources", given.keep_sources, "FROM's bytes stay, as weights sent to rollouts do");
  command.add_option("--relay", given.relay, "never, always, or auto: whichever is faster");
  command.add_option("--relabel", given.relabel, "seat TO better: by nodes (default) or groups")->type_name("[BY]");
}

CLI::App& add_compare(CLI::App& app, arguments& given) {
  CLI::App& compare = *app.add_subcommand("compare", "which layout to go to? all legal ones on N devices");
  add_model(compare, given);
  add_from(compare, given);
  compare.add_option("--devices", given.devices, "how many devices the job goes to")->required();
  compare.add_option("--memory", given.memory, "most bytes that a rank may hold, like 40GiB");
  compare.add_option("--axes", given.axes, "which vary, of tp,pp,dp,ep (the default)");
  compare.add_option("--svg", given.svg, "write seconds against memory to this file");
  compare.add_option("--top", given.top, "how many are listed; 20, with --json all");
  add_switch(compare, given, "NODESxGPUS, a name or a file; default: one node");
  return compare;
}

/// The words, last first, as CLI11 takes them. --relabel has nodes or groups after it, or neither and so nodes: what
/// else follows is no part of it.
std::vector<std::string> words_of(int count, const char* const* given) {
  std::vector<std::string> words;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = given[i], next = i + 1 < count ? given[i + 1] : "";
    words.emplace_back(word);
    if (word != "--relabel") continue;
    const bool said = next == "nodes" || next == "groups";
    words.back() += said ? "=" + std::string(next) : "=nodes";
    if (said) ++i;
  }
  std::reverse(words.begin(), words.end());
  return words;
}

/// One sentence on stderr; always exit code 1.
int refuse_with(std::string sentence) {
  constexpr std::string_view whose = "reshard: ";
  if (!sentence.starts_with(whose)) sentence.insert(0, whose);
  std::fprintf(stderr, "%s\n", reshard::io::one_line(sentence, 2000).c_str());
  return 1;
}

/// What CLI11 says, as part of a sentence.
int refuse_usage(std::string words) {
  const auto upper = [](char c) { return 'A' <= c && c <= 'Z'; };
  if (words.size() > 1 && upper(words[0]) && !upper(words[1])) words[0] = static_cast<char>(words[0] - 'A' + 'a');
  return refuse_with(words.append("; see reshard --help"));
}

/// How many characters must be put in, left out or changed, or neighbours swapped, to make one word of the other.
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> edits(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      std::size_t& least = edits[i][j] = i + j;
      if (i > 0) least = std::min(least, edits[i - 1][j] + 1);
      if (j > 0) least = std::min(least, edits[i][j - 1] + 1);
      if (i > 0 && j > 0) least = std::min(least, edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1));
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) least = std::min(least, edits[i - 2][j - 2] + 1);
    }
  return edits[a.size()][b.size()];
}

/// Refuses a word that is no subcommand; one that two edits make of it may have been meant.
int refuse_subcommand(std::string_view word) {
  std::string close;
  for (const std::string_view name : {"check", "regions", "plan", "simulate", "compare", "elastic"})
    if (word.size() <= name.size() + 2 && edits_between(word, name) <= 2)
      close = reshard::io::text_of(" is close to ", name, " but");
  return refuse_with(
      reshard::io::text_of("'", reshard::io::one_line(word), "'", close,
                           " is no subcommand; they are check, regions, plan, simulate, compare and elastic"));
}

int run(int count, const char* const* words) {
  CLI::App app("Who holds what under a layout of parallel training, and what must move between\ntwo of them.",
               "reshard");
  app.get_formatter()->column_width(24);
  app.footer(footer);
  app.set_version_flag("--version", "reshard " RESHARD_VERSION);
  app.require_subcommand(1, 1);
  arguments given;

  CLI::App& check = *app.add_subcommand("check", "is a layout legal, and how many bytes has each rank?");
  add_model(check, given);
  check.add_option("LAYOUT", given.layout, "the layout: keys and numbers, see below")->required();

  CLI::App& regions = *app.add_subcommand("regions", "who holds what: a picture, one rank's table, or JSON");
  add_model(regions, given);
  regions.add_option("LAYOUT", given.layout, "the layout: keys and numbers, see below")->required();
  regions.add_option("--rank", given.rank, "only this rank");
  add_state(regions, given);
  regions.add_option("--svg", given.svg, "write the picture to this file");

  CLI::App& plan = *app.add_subcommand("plan", "what must move from one layout to another");
  add_model(plan, given);
  add_sides(plan, given);
  add_switch(plan, given, "NODESxGPUS, a name or a file; default: one node");
  plan.add_option("--rank", given.rank, "only what goes from or to this device");
  plan.add_flag("--transfers", given.transfers, "list every transfer (with --json)");

  CLI::App& simulate = *app.add_subcommand("simulate", "how long will the switch take? predicted, not measured");
  add_model(simulate, given);
  add_sides(simulate, given);
  add_switch(simulate, given, "a800, h100, h200, gb200 or a JSON file");
  simulate.add_option("--svg", given.svg, "write a heat map of bytes between devices to this file");
  simulate.add_option("--trace", given.trace, "write what happens when to this file, for Perfetto");

  CLI::App& compare = add_compare(app, given);
  reshard::tool::add_elastic(app);

  try {
    app.parse(words_of(count, words));
    if (check.parsed()) reshard::tool::check(given);
    if (regions.parsed()) reshard::tool::regions(given);
    if (plan.parsed()) reshard::tool::plan(given);
    if (simulate.parsed()) reshard::tool::simulate(given);
    if (compare.parsed()) reshard::tool::compare(given);
    return 0;
  } catch (const CLI::Success& asked) {  // --help, --version
    std::ostringstream said;
    const int code = app.exit(asked, said);
    reshard::io::text_output out(stdout);
    out << said.str();
    out.flush();
    return code;
  } catch (const CLI::ParseError& wrong) {
    const std::vector<std::string> rest = app.remaining();
    const auto word =
        std::find_if(rest.begin(), rest.end(), [](const std::string& one) { return !one.starts_with('-'); });
    if (app.get_subcommands().empty() && word != rest.end()) return refuse_subcommand(*word);
    return refuse_usage(wrong.what());
  }
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count, words);
  } catch (const std::bad_alloc&) {
    return refuse_with("the answer does not fit the memory");
  } catch (const std::exception& stopped) {
    return refuse_with(stopped.what());
  }
}
