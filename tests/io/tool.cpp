// SPDX-License-Identifier: Apache-2.0
// The tool as a process: whatever it is given, a refusal is one sentence on stderr, nothing on stdout, exit code 1; and
// what it accepts it answers with exit code 0 and nothing on stderr. The program is in RESHARD_TOOL.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/print.hpp>
#include <reshard/model/presets.hpp>

#include "../support/tries.hpp"
#include "process.hpp"

using testing::answer, testing::ask, testing::content_of, testing::here, testing::words;

namespace {

std::string shown(const words& arguments) {
  std::string text;
  for (const std::string& word : arguments) text += " '" + word.substr(0, 100) + "'";
  return text;
}

/// Refused in one sentence, with --json and without.
void check_refused(words arguments, const std::string& part = "") {
  for (int i = 0; i < 2; ++i) {
    const std::string asked = shown(arguments);
    CAPTURE(asked);
    const answer got = ask(arguments);
    CHECK(got.code == 1);
    CHECK(got.out == "");
    CHECK(got.err.starts_with("reshard: "));
    CHECK(got.err.size() < 2200);
    CHECK(std::count(got.err.begin(), got.err.end(), '\n') == 1);
    CHECK(got.err.back() == '\n');
    CHECK(std::none_of(got.err.begin(), got.err.end() - 1,
                       [](char c) { return (static_cast<unsigned char>(c) < 32) || c == 127; }));
    if (got.err.find(part) == std::string::npos) CHECK(got.err == part);
    if (arguments.empty()) return;
    arguments.push_back("--json");
  }
}

const std::string llama =
    R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 8,
    "intermediate_size": 96, "vocab_size": 128})";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

}  // namespace

TEST_CASE("usage errors are sentences too") {
  check_refused({}, "subcommand is required");
  check_refused({"--transfers"}, "subcommand is required");
  for (const char* word : {"", "frobnicate", "c", "checks-all", "xyz"})
    check_refused({word, "llama2-7b", "tp=2"},
                  std::string("reshard: '") + word +
                      "' is no subcommand; they are check, regions, plan, simulate, compare and elastic\n");
  const std::pair<const char*, const char*> close[] = {
      {"chekc", "check"},    {"chk", "check"},       {"checked", "check"}, {"hceck", "check"}, {"Check", "check"},
      {"region", "regions"}, {"rigeons", "regions"}, {"paln", "plan"},     {"plane", "plan"},  {"an", "plan"}};
  for (const auto& typed : close)
    check_refused({typed.first, "llama2-7b", "tp=2"},
                  std::string("reshard: '") + typed.first + "' is close to " + typed.second +
                      " but is no subcommand; they are check, regions, plan, simulate, compare and elastic\n");
  check_refused({"--transfers", "paln"}, "'paln' is close to plan");  // whatever option stands before it
  check_refused({std::string(100000, 'x')}, "...");
  check_refused({"check"}, "MODEL is required");
  check_refused({"check", "llama2-7b"}, "LAYOUT is required");
  check_refused({"check", "llama2-7b", "tp=2", "tp=2"}, "not expected: tp=2");
  check_refused({"check", "llama2-7b", "tp=2", "--rank", "0"}, "not expected");
  check_refused({"regions", "llama2-7b", "tp=2", "--rank"}, "--rank");
  check_refused({"regions", "llama2-7b", "tp=2", "--rank="});
  check_refused({"regions", "llama2-7b", "tp=2", "--rank", "0", "--rank", "1"}, "--rank");
  check_refused({"regions", "llama2-7b", "tp=2", "--frobnicate\n\x1b[31m"}, "not expected");
  check_refused({"check", "check", "tp=2"}, "no model is called 'check'");
  check_refused({"simulate"}, "MODEL is required");
  check_refused({"simulate", "llama2-7b", "tp=2", "tp=4"}, "simulate: --cluster is missing");
  check_refused({"simulate", "llama2-7b", "tp=2", "tp=4", "--cluster", "2x8"}, "2x8 is a shape, which has no speeds");
  check_refused({"plan", "llama2-7b", "tp=2"}, "TO is required");
  check_refused({"plan", "llama2-7b", "tp=2", "tp=4", "--relabel=all"},
                "--relabel: 'all' is unknown; it is nodes or groups");
  check_refused({"plan", "llama2-7b", "tp=2", "tp=4", "extra"}, "not expected: extra");
}

TEST_CASE("help says what every argument is, in 80 columns") {
  for (const words& asked : std::vector<words>{
           {"--help"}, {"check", "--help"}, {"regions", "--help"}, {"plan", "--help"}, {"simulate", "--help"}}) {
    CAPTURE(shown(asked));
    const answer got = ask(asked);
    std::istringstream help(got.out);
    for (std::string line; std::getline(help, line);) {
      CHECK(line.size() <= 80);
      if (line.starts_with("  ") && line.substr(2) != "") CHECK(line.size() > 24);  // the words begin in column 25
    }
    for (const char* key : {"tp", "cp", "pp", "vpp", "dp", "ep", "etp", "zero", "split", "bucket", "first last",
                            "string", "order", "instances", "busbw", "pad ", "shard ", "experts ", "names "})
      CHECK(got.out.find(key) != std::string::npos);
  }
  const std::vector<words> layouts{{"check", "LAYOUT"}, {"regions", "LAYOUT"}, {"plan", "FROM"},
                                   {"plan", "TO"},      {"simulate", "FROM"},  {"simulate", "TO"}};
  for (const words& asked : layouts) {
    const std::string help = ask({asked[0], "--help"}).out;
    const std::string argument = "\n  " + asked[1] + " TEXT REQUIRED";
    REQUIRE(help.find(argument) != std::string::npos);
    CHECK(help.substr(help.find(argument) + argument.size()).find("layout") < 40);
  }
}

TEST_CASE("tables and pictures of every preset take at most 80 columns of a terminal") {
  int answers = 0, tried = 0;
  const auto check_narrow = [&](const words& asked) {
    CAPTURE(shown(asked));
    const answer got = ask(asked);
    CHECK(got.code == 0);
    ++answers;
    std::istringstream text(got.out);
    for (std::string line; std::getline(text, line);)
      if (reshard::io::text_width(line) > 80) CHECK(line == "");
  };
  for (const reshard::transformer& t : reshard::models::presets) {
    const std::string model(t.name);
    const bool odd = t.layers % 2 != 0;
    const std::string half = std::to_string(t.layers / 2), spread = odd ? ",split=spread" : "";
    words layouts{"", "tp=4,pp=2,dp=2,zero=1" + spread,
                  odd ? "tp=4,pp=2,dp=2,zero=1,first=" + half : "tp=4,pp=2,dp=2,vpp=" + half + ",zero=1",
                  "tp=4,cp=2,pp=16,dp=8,zero=1,split=spread,bucket=40000000", "pp=30,dp=128,split=spread"};
    if (t.experts > 0)
      for (const std::string& layout :
           {"tp=4,pp=2,dp=4,ep=16,zero=1" + spread, std::string("tp=4,pp=8,dp=4,ep=16,zero=1,split=spread"),
            std::string("tp=4,cp=2,pp=8,dp=16,ep=128,etp=1,zero=1,split=spread,bucket=40000000")})
        layouts.push_back(layout);
    for (const std::string& layout : layouts) {
      if (tried++ * 7 % 60 >= testing::tries(60)) continue;
      check_narrow({"check", model, layout});
      check_narrow({"regions", model, layout});
      const words to{"plan", model, layout, "tp=8,pp=16,zero=1,split=spread"};
      const auto plan_with = [&](words options) {
        options.insert(options.begin(), to.begin(), to.end());
        return options;
      };
      for (const char* rank : {"0", "1"}) {
        if (!layout.empty() || rank[0] == '0') check_narrow({"regions", model, layout, "--rank", rank});
        check_narrow(plan_with({"--rank", rank, "--cluster", "2048x8", "--state", "optimizer", "--budget", "64GiB"}));
      }
      const bool few_pieces = layout.find("bucket") == std::string::npos && layout.find("vpp") == std::string::npos;
      if (few_pieces) check_narrow(plan_with({}));
    }
  }
  CHECK(answers > 3 * testing::tries(60));
}

TEST_CASE("models that do not exist or cannot be read") {
  check_refused({"check", "llama3-8b", ""}, "no model is called 'llama3-8b'; known are llama2-7b");
  check_refused({"check", "", ""}, "no model is called ''");
  check_refused({"check", std::string(100000, 'x'), ""}, "File name too long");
  check_refused({"check", "a\nb\tc", ""}, "no model is called 'a\\x0ab\\x09c'");
  check_refused({"check", "/nonexistent/config.json", ""}, "No such file or directory");
  check_refused({"check", "/", ""}, "Is a directory");
  check_refused({"check", here().folder.string(), ""}, "Is a directory");
  check_refused({"check", "/dev/null", ""}, "the file is empty");
  check_refused({"check", "/dev/zero", ""}, "larger than 16777216 bytes");
  check_refused({"check", "/proc/self/mem", ""}, "cannot be read");
}

TEST_CASE("hostile files") {
  const std::string big = std::string(20'000'000, ' ') + llama;
  const std::pair<std::string, std::string> files[] = {
      {"empty", ""},
      {"spaces", std::string(1000, '\n')},
      {"zeros", std::string(1000, '\0')},
      {"binary",
       "\x7f"
       "ELF\x02\x01\x01\xff\xfe"},
      {"big", big},
      {"deep lists", std::string(1'000'000, '[')},
      {"deep in key", "{\"a\":" + std::string(1'000'000, '[')},
      {"deep and closed", "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}"},
      {"deep objects",
       [] {
         std::string text;
         for (int i = 0; i < 100'000; ++i) text += "{\"a\":";
         return text;
       }()},
      {"cut", llama.substr(0, llama.size() - 1)},
      {"twice", llama + llama},
      {"utf16", std::string("\xff\xfe{\0}\0", 6)},
      {"bad utf8", replaced(llama, "LlamaForCausalLM", "Llama\xc3\x28")},
      {"list", "[" + llama + "]"},
      {"text", "\"" + std::string(1'000'000, 'x') + "\""},
      {"long name", replaced(llama, "LlamaForCausalLM", std::string(1'000'000, 'x'))},
      {"escapes in name", replaced(llama, "LlamaForCausalLM", "\\n\\u0000\\u001b[31m")},
      {"long number", replaced(llama, "64", std::string(100'000, '9'))},
      {"nan", replaced(llama, "64", "NaN")},
      {"infinity", replaced(llama, "64", "1e999")},
      {"fraction", replaced(llama, "64", "64.0")},
      {"exponent", replaced(llama, "64", "4.0e3")},
      {"negative", replaced(llama, "64", "-64")},
      {"zero", replaced(llama, "64", "0")},
      {"huge", replaced(llama, "64", "9223372036854775807")},
      {"too huge", replaced(llama, "64", "9223372036854775808")},
      {"many layers", replaced(llama, ": 4,", ": 4611686018427387904,")},
      {"duplicate", replaced(llama, "{", "{\"hidden_size\": 64, ")},
      {"null", replaced(llama, "64", "null")},
      {"text size", replaced(llama, "64", "\"64\"")},
      {"true", replaced(llama, "64", "true")},
      {"object", replaced(llama, "64", "{\"hidden_size\": 64}")},
      {"missing", replaced(llama, "hidden_size", "hidden")},
      {"mixtral", replaced(llama, "Llama", "Mixtral")},
      {"no heads", replaced(llama, "8", "7")},
      {"string architecture", replaced(replaced(llama, "[", ""), "]", "")},
  };
  for (const auto& [name, content] : files) check_refused({"check", here().file(name, content), ""});
  check_refused(
      {"check",
       here().file("many layers of two kinds",
                   R"({"architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 1000000, "hidden_size": 8,
    "num_attention_heads": 1, "vocab_size": 8, "num_experts": 2, "moe_intermediate_size": 8, "intermediate_size": 8,
    "decoder_sparse_step": 2})"),
       ""},
      "two kinds");
}

TEST_CASE("hostile layouts and options") {
  for (const char* layout : {"tp",
                             "tp=",
                             "=2",
                             "tp=2,",
                             ",tp=2",
                             "tp=2,,pp=2",
                             "tp=2,tp=2",
                             "TP=2",
                             "tp=0",
                             "tp=-1",
                             "tp=1.0",
                             "tp=2 ",
                             "tp= 2",
                             "tp=2;pp=2",
                             "xp=2",
                             "tp=99999999999999999999",
                             "dp=9223372036854775807,tp=2",
                             "tp=3",
                             "pp=3",
                             "ep=2",
                             "etp=1",
                             "zero=3",
                             "split=odd",
                             "vpp=2",
                             "bucket=x",
                             "split=spread,pp=2,vpp=2",
                             "tp=2\n",
                             "\xff\xfe",
                             "[tp=2]",
                             "{}",
                             "%s%n",
                             "--",
                             "tp=2,pp=4,vpp=4611686018427387904"})
    check_refused({"check", "llama2-7b", layout});
  check_refused({"check", "llama2-7b", "dp=1000000000"}, "1000000000 ranks");
  for (const char* rank : {"2", "-1", "a", "", "1e0", "9223372036854775808", "0x1", " 1"})
    check_refused({"regions", "llama2-7b", "tp=2", "--rank", rank}, "--rank");
  for (const char* state : {"grad", "", "PARAM", "param,master"})
    check_refused({"regions", "llama2-7b", "tp=2", "--state", state}, "--state");
  for (const char* subcommand : {"check", "regions"})
    check_refused({subcommand, "llama2-7b", "tp=2", "--states", "adamw"}, "states: 'adamw' is no list");
  check_refused({"plan", "llama2-7b", "tp=2", "tp=4", "--states", "param:bf16:1"}, "states: param is of level 1");
  check_refused({"regions", "llama2-7b", "tp=2", "--states", "sgd", "--state", "exp_avg"},
                "--state: 'exp_avg' is unknown; it is param, master, optimizer or all");
  check_refused({"regions", "llama2-7b", "tp=2", "--svg", "/nonexistent/x.svg"}, "cannot be written");
  check_refused({"regions", "llama2-7b", "tp=2", "--svg", "/"}, "cannot be written");
  check_refused({"regions", "llama2-7b", "tp=2", "--svg", "/dev/full"}, "cannot be written");
}

TEST_CASE("switches that cannot be planned") {
  const auto refused = [](const words& options, const std::string& part) {
    words asked{"plan", "llama2-7b", "tp=2,dp=2", "tp=8"};
    asked.insert(asked.end(), options.begin(), options.end());
    check_refused(asked, part);
  };
  refused({"--rank", "8"}, "there is no device 8; devices are 0 to 7");
  refused({"--rank", "12", "--cluster", "1x12"}, "there is no device 12; devices are 0 to 11");
  refused({"--rank", "x"}, "--rank: 'x' is not a number");
  refused({"--state", "grad"}, "--state: 'grad' is unknown");
  refused({"--cluster", "1x7"}, "--cluster 1x7 has 7 devices, but device 7 is named");
  refused({"--cluster", "2x8", "--to-devices", "9-16"}, "--cluster 2x8 has 16 devices, but device 16 is named");
  refused({"--cluster", "8"}, "NODESxGPUS");
  refused({"--from-devices", "0-7"}, "--from-devices: 8 devices are listed for 4 ranks");
  refused({"--to-devices", "0-6"}, "--to-devices: 7 devices are listed for 8 ranks");
  refused({"--to-devices", "0-6,3"}, "--to-devices: device 3 is listed twice");
  refused({"--to-devices", "7-0"}, "--to-devices: the range 7-0 runs backwards");
  refused({"--from-devices", "0-3,"}, "--from-devices: a number is missing");
  refused({"--from-devices", "0-2,4194304"}, "--from-devices: device 4194304 is too large");
  refused({"--from-devices", ""}, "--from-devices");
  refused({"--lost-devices", "8"}, "switch: device 8 is called lost, but devices are 0 to 7");
  refused({"--lost-devices", "3"}, "switch: rank 3 of TO is on device 3, which is lost; TO wants living devices");
  refused({"--lost-devices", ""}, "--lost-devices: a number is missing");
  refused({"--lost-devices", "2-1"}, "--lost-devices: the range 2-1 runs backwards");
  refused({"--lost-devices", "1,0-2"}, "--lost-devices: device 1 is listed twice");
  refused({"--lost-devices", "x"}, "--lost-devices: 'x' is not a number");
  refused({"--lost-devices", "4194304"}, "--lost-devices: device 4194304 is too large");
  refused({"--leave-out-lost"}, "say with --lost-devices which they are");
  refused(
      {"--lost-devices", "1,3", "--to-devices", "4-11"},
      "--lost-devices: 47167045632 bytes that TO holds were on lost devices alone: embedding.word_embeddings.weight ");
  refused({"--lost-devices", "1", "--to-devices", "4-11", "--rank", "1"}, "--rank: device 1 is lost");
  refused({"--budget", "0"}, "--budget: it must be at least 1 byte");
  // two devices change places
  check_refused(
      {"plan", "llama2-7b", "tp=2", "tp=2", "--to-devices", "1,0", "--budget", "1"},
      "--budget: 1 bytes cannot work: of 1, 2, 4 .. 4096 stages none keeps it on every device; the least budget "
      "that does is ");
  for (const char* text : {"64M", "64Mib", "64 megabytes"})
    refused({"--budget", text},
            std::string("--budget: '") + text +
                "' may be 64MB, which is 64000000 bytes, or 64MiB, which is 67108864; units are B, kB, MB,");
  refused({"--budget", "-5"}, "--budget: '-5' is not a number");
  check_refused({"plan", "llama2-7b", "tp=3", "tp=8"}, "do not divide by tp=3");
  check_refused({"plan", "llama2-7b", "tp=2", "tp=8,tp=8"}, "given twice");
  check_refused({"plan", "llama2-7b", "dp=10000000", "tp=8"}, "FROM has 10000000 ranks");
  check_refused({"plan", "qwen3-235b-a22b", "dp=4000000", "tp=4"}, "does not fit 64 bits");
  const answer dump = ask({"plan", "llama2-7b", "tp=2", "tp=4", "--transfers"});
  CHECK(dump.code == 1);
  CHECK(dump.err == "reshard: --transfers lists every transfer as JSON; give --json with it\n");
}

TEST_CASE("what is legal is answered") {
  const std::string config = here().file("llama.json", llama);
  for (const words& asked : std::vector<words>{
           {"check", "llama2-7b", ""},
           {"check", config, "tp=2,pp=2,zero=1,dp=2"},
           {"regions", config, "tp=2"},
           {"regions", config, "tp=2,dp=2,zero=1", "--rank", "3"},
           {"regions", "qwen3-235b-a22b", "tp=4,pp=94,dp=44,ep=8,zero=1"},
           {"plan", "llama2-70b", "tp=8,pp=2,dp=64,zero=1", "tp=4,pp=4,dp=64,zero=1", "--cluster", "128x8"},
           {"plan", config, "tp=2", "tp=4", "--budget", "10kB"},
           {"plan", config, "tp=2", "tp=4", "--rank", "3"},
           {"--help"},
           {"--version"},
           {"check", "--help"},
           {"plan", "--help"}}) {
    CAPTURE(shown(asked));
    const answer got = ask(asked);
    CHECK(got.code == 0);
    CHECK(got.err == "");
    CHECK(got.out.size() > 10);
    CHECK(std::count(got.out.begin(), got.out.end(), '\n') < 200);
  }
  for (const words& asked :
       std::vector<words>{{"check", "llama2-7b", "", "--json"},
                          {"check", "--json", config, "tp=2"},
                          {"regions", config, "tp=2", "--json"},
                          {"regions", config, "tp=2,pp=2", "--rank", "1", "--state", "optimizer", "--json"}}) {
    CAPTURE(shown(asked));
    const answer got = ask(asked);
    CHECK(got.code == 0);
    CHECK(got.err == "");
    CHECK(nlohmann::json::parse(got.out).is_object());
  }
  CHECK(ask({"check", config, "tp=2", "--json"}).out ==
        "{\"legal\":true,\"world\":2,\"bytes_per_rank\":{\"param\":[" +
            std::string("156800,156800],\"master\":[313600,313600],\"exp_avg\":[313600,313600],\"exp_avg_sq\":[313600,"
                        "313600]}}\n"));
  CHECK(ask({"check", config, "dp=2,zero=2", "--states", "m:bf16:1,param:fp32:3,grad:fp8:2", "--json"}).out ==
        "{\"legal\":true,\"world\":2,\"bytes_per_rank\":{\"m\":[156288,156160],\"param\":[624896,624896],\"grad\":["
        "78144,78080]}}\n");
  for (const char* layout : {"dp=2,zero=1", "dp=2,zero=2"}) {  // what is not tabulated is not needed for a picture
    CHECK(ask({"regions", config, layout, "--states", "param:fp32:3"}).code == 0);
    CHECK(ask({"regions", config, layout, "--states", "param:fp32:3,grad:fp32:2", "--rank", "1"}).code == 0);
  }
  const nlohmann::json moved = nlohmann::json::parse(
      ask({"plan", config, "dp=2,zero=1", "tp=2", "--states", "lion+grad", "--transfers", "--json"}).out);
  std::map<std::string, int> states;
  for (const nlohmann::json& t : moved.at("transfers")) ++states[t.at("state").get<std::string>()];
  CHECK(states.size() == 4);
  CHECK(states.count("grad") == 1);
  const std::string picture = (here().folder / "picture.svg").string();
  CHECK(ask({"regions", config, "tp=2", "--svg", picture}).code == 0);
  CHECK(content_of(picture).starts_with("<svg "));
}

TEST_CASE("a full disk and a closed stdout are noticed, by every command, short answers and long ones") {
  const std::string config = here().file("llama.json", llama);
  const std::string sentence = "reshard: the output cannot be written: the disk is full, or nobody reads\n";
  for (const words& asked :
       std::vector<words>{{"--version"},
                          {"--help"},
                          {"plan", "--help"},
                          {"check", "llama2-7b", ""},
                          {"check", config, "tp=2", "--json"},
                          {"regions", "llama2-7b", "tp=2"},
                          {"regions", config, "tp=2", "--rank", "1"},
                          {"regions", "llama2-7b", "tp=8,dp=4", "--json"},  // more than is buffered
                          {"plan", config, "tp=2", "tp=4"},
                          {"plan", "llama2-7b", "tp=8", "tp=4", "--json", "--transfers"}}) {
    CAPTURE(shown(asked));
    const answer fine = ask(asked);
    CHECK(fine.code == 0);
    for (const char* to : {"/dev/full", ""}) {
      CAPTURE(std::string(to));
      const answer got = ask(asked, to);
      CHECK(got.code == 1);
      CHECK(got.err.substr(0, 200) == sentence);
    }
  }
  const answer picture = ask({"regions", config, "tp=2", "--svg", "/dev/full"});
  CHECK(picture.code == 1);
  CHECK(picture.out == "");
  CHECK(picture.err == "reshard: /dev/full cannot be written: No space left on device\n");
}
