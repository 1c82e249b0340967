// SPDX-License-Identifier: Apache-2.0
// The demo: three switches of a whole mixed-precision Adam state between parallel layouts, 8 ranks in one process,
// every element verified; how much moves, how much memory that takes, and how fast it is beside a plain memcpy. Started
// by the script tools/demo. Every measurement is a child process of its own (demo_measure.cpp); this one starts them,
// and prints what they found.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <reshard/io/arguments.hpp>
#include <reshard/io/print.hpp>

#include "demo_fault.hpp"
#include "demo_measure.hpp"
#include "demo_processes.hpp"

namespace {

using namespace demo;
using reshard::io::bytes_text, reshard::io::count_text, reshard::refuse, reshard::io::seconds_text,
    reshard::io::text_of;

constexpr const char* usage =
    "tools/demo [--json] [--rounds N] [--transport threads|mailboxes|sockets|mpi] "
    "[--relay GPUS] [MODEL FROM TO [--budget BYTES | --warm] [--from-devices LIST] [--to-devices LIST] "
    "[--fault kill|stop:DEVICE@STAGE [--keep] [--then LAYOUT] [--patience SECONDS]]]";
constexpr const char* self = "/proc/self/exe";

struct request_list {
  std::vector<switch_request> switches;
  fault_request fault;
  index_t rounds = 0;  // 0: as many as time allows
  enum class format { text, json } as = format::text;
};

std::vector<switch_request> usual_switches(const std::string& models) {
  const std::string llama = models + "/llama-160m.config.json", from = "tp=2,pp=2,dp=2,zero=1";
  return {{"llama", llama, from, "tp=4,pp=1,dp=2,zero=1", {}, {}},
          {"qwen3-moe",
           models + "/qwen3-moe-small.config.json",
           "tp=2,pp=2,dp=2,ep=4,zero=1",
           "tp=1,pp=2,dp=4,ep=2,zero=1",
           {},
           {}},
          {"llama-8-to-6", llama, from, "tp=2,pp=1,dp=3,bucket=1000000,zero=1", {}, "0-2,4-6"}};
}

/// "examples/models/llama-160m.config.json" -> "llama-160m"
std::string short_name(std::string path) {
  if (const std::size_t slash = path.rfind('/'); slash != path.npos) path.erase(0, slash + 1);
  return path.substr(0, path.find('.'));
}

/// A number from 1 to `most`; `what` begins the sentence where it is none.
index_t parse_number(const char* option, const std::string& text, index_t most, const char* what) {
  index_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 1 || number > most)
    refuse(option, " ", reshard::io::one_line(text), ": ", what, " 1 to ", most);
  return number;
}
index_t parse_rounds(const std::string& text) { return parse_number("--rounds", text, 99, "the rounds are"); }
index_t parse_node(const std::string& text) { return parse_number("--relay", text, 1024, "the devices of a node are"); }

/// Why the demo does not run over NCCL here.
std::string without_gpu() {
  constexpr const char* instead = "this demo moves a host's memory; tools/gpu is the one for GPUs";
  if (::access("/dev/nvidia0", F_OK) != 0) return text_of("there is no GPU on this machine; ", instead);
  return instead;
}

std::string parse_transport(const std::string& text) {
  if (text == "nccl") refuse("--transport nccl: ", without_gpu());
  for (const char* name : transport_names)
    if (text == name) {
      if (text == "mpi" && ::access(over_mpi_program().c_str(), X_OK) != 0)
        refuse("--transport mpi: this demo was built without MPI");
      return text;
    }
  refuse("--transport ", reshard::io::one_line(text),
         ": it is threads, mailboxes, sockets or mpi; nccl is refused, and others were not built");
}

request_list parse_arguments(const std::vector<std::string>& arguments) {
  request_list result;
  std::vector<std::string> words;
  switch_request options;
  bool special = false, of_fault = false, named = false, budgeted = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == arguments.size()) refuse(word, " wants a value; ", usage);
      return arguments[++i];
    };
    if (word == "--json") result.as = request_list::format::json;
    else if (word == "--rounds") result.rounds = parse_rounds(value());
    else if (word == "--transport") options.transport = parse_transport(value()), named = true;
    else if (word == "--relay") options.node_devices = parse_node(value());
    else if (word == "--fault") parse_fault(value(), result.fault), special = true;
    else if (word == "--keep") result.fault.keep = of_fault = true;
    else if (word == "--then") result.fault.then = value(), of_fault = true;
    else if (word == "--patience") result.fault.patience_seconds = parse_patience(value()), of_fault = true;
    else if (word == "--budget")
      options.budget = reshard::io::parse_bytes("--budget", value()), special = budgeted = true;
    else if (word == "--warm") options.warm = special = true;
    else if (word == "--from-devices") options.from_devices = value(), special = true;
    else if (word == "--to-devices") options.to_devices = value(), special = true;
    else if (word.starts_with("--")) refuse("there is no option ", reshard::io::one_line(word), "; ", usage);
    else words.push_back(word);
  }
  const bool faulty = result.fault.what != fault_request::kind::none;
  if (of_fault && !faulty) refuse("--keep, --then and --patience are of --fault; ", usage);
  if (options.node_devices > 0 && (faulty || options.transport == "mpi"))
    refuse("--relay is for whole switches over threads, mailboxes or sockets; ", usage);
  if (options.warm && (faulty || budgeted || options.transport != "sockets"))
    refuse("--warm is for whole switches over sockets without a budget; ", usage);
  if (faulty && named && options.transport != "sockets")
    refuse("--fault wants processes that can die alone; give --transport sockets with it");
  if (words.empty() && !special) {
    const char* models = std::getenv("RESHARD_DEMO_MODELS");
    result.switches = usual_switches(models != nullptr ? models : "examples/models");
    for (switch_request& r : result.switches) r.transport = options.transport, r.node_devices = options.node_devices;
  } else if (words.size() == 3) {
    options.name = short_name(words[0]);
    options.model = words[0], options.from = words[1], options.to = words[2];
    result.switches = {options};
  } else {
    refuse("a MODEL and two layouts are wanted, or nothing at all; ", usage);
  }
  return result;
}

/// What a child told: numbers by name.
using numbers = std::map<std::string, double>;

/// One line that says how far things are, where somebody watches a terminal.
class progress {
 public:
  explicit progress(bool shown) : shown_(shown && ::isatty(STDOUT_FILENO) == 1) {}
  ~progress() { clear(); }
  void show(const std::string& what, double part) const {
    if (!shown_) return;
    constexpr int width = 32;
    const int full = static_cast<int>(part * width + 0.5);
    std::printf("\r\033[K  [%s%s] %s", std::string(static_cast<std::size_t>(full), '#').c_str(),
                std::string(static_cast<std::size_t>(width - full), '.').c_str(), what.c_str());
    std::fflush(stdout);
  }
  void clear() const {
    if (shown_) std::printf("\r\033[K"), std::fflush(stdout);
  }

 private:
  bool shown_;
};

/// A child that has refused something has said so on stderr.
struct child_failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs one measurement in a process of its own; on_stage(part) is called as its stages pass.
template <typename OnStage>
numbers run_child(const switch_request& r, measurement kind, OnStage&& on_stage) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error(text_of("reshard: no pipe: ", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  std::vector<std::string> words = {"demo",
                                    "--measure",
                                    measurement_names[static_cast<int>(kind)],
                                    r.model,
                                    r.from,
                                    r.to,
                                    std::to_string(r.budget),
                                    r.from_devices,
                                    r.to_devices,
                                    r.transport,
                                    std::to_string(r.node_devices)};
  std::vector<char*> arguments;
  for (std::string& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, self, &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) throw std::runtime_error(text_of("reshard: the demo cannot start itself: ", std::strerror(error)));

  numbers told;
  std::FILE* lines = ::fdopen(ends[0], "r");
  char line[256], key[64];
  double number = 0, of = 0;
  while (std::fgets(line, sizeof line, lines) != nullptr) {
    if (std::sscanf(line, "at %lf %lf", &number, &of) == 2) on_stage(number / of);
    else if (std::sscanf(line, "%63s %lf", key, &number) == 2) told[key] = number;
  }
  std::fclose(lines);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    throw std::runtime_error(text_of("reshard: ", r.name, ": the process that measured '",
                                     measurement_names[static_cast<int>(kind)], "' was ended by signal ",
                                     WTERMSIG(status), WTERMSIG(status) == 9 ? ", as for want of memory" : ""));
  if (WEXITSTATUS(status) != 0 || told.contains("failed")) throw child_failed("refused");
  return told;
}

/// What this machine, and the control group that we are in, have left.
bytes_t available_memory() {
  bytes_t available = std::numeric_limits<bytes_t>::max();
  if (std::FILE* info = std::fopen("/proc/meminfo", "r")) {
    char line[256];
    long long kib = 0;
    while (std::fgets(line, sizeof line, info) != nullptr)
      if (std::sscanf(line, "MemAvailable: %lld", &kib) == 1) available = kib * 1024;
    std::fclose(info);
  }
  const auto read = [](const char* path, bytes_t none) {
    long long value = 0;
    std::FILE* file = std::fopen(path, "r");
    if (file == nullptr) return none;
    if (std::fscanf(file, "%lld", &value) != 1) value = none;
    std::fclose(file);
    return static_cast<bytes_t>(value);
  };
  const bytes_t limit = read("/sys/fs/cgroup/memory.max", -1);
  if (limit >= 0) available = std::min(available, limit - read("/sys/fs/cgroup/memory.current", 0));
  return available;
}

/// One switch, with what all its measurements told.
struct outcome {
  switch_request of;
  numbers plan, staged, warm;
  double copy_seconds = 0;
  double warm_copy_seconds = 0;

  double at(const char* key) const { return staged.at(key); }
  bytes_t count(const char* key) const { return static_cast<bytes_t>(staged.at(key)); }
  double seconds() const { return staged.at("seconds"); }
  double ratio() const { return copy_seconds / seconds(); }
  double warm_ratio() const { return warm_copy_seconds / warm.at("seconds"); }
  double gigabytes() const { return (at("moved_bytes") + at("retained_bytes")) / 1e9; }
};

/// Rounds of the staged switch and its memcpy, of each of which the fastest counts, as other programs only ever slow
/// one down; and the warm pair. Without a number of rounds there are up to 5, as long as they begin within 12 seconds.
outcome measure_all(const switch_request& r, index_t asked_rounds, const progress& bar) {
  const auto begin = std::chrono::steady_clock::now();
  const index_t rounds = asked_rounds > 0 ? asked_rounds : 5;
  outcome result;
  result.of = r;
  result.plan = run_child(r, measurement::plan, [](double) {});
  const auto needed =
      static_cast<bytes_t>(std::max(result.plan.at("staged_memory_bytes"), result.plan.at("warm_memory_bytes"))) +
      (bytes_t{256} << 20);
  if (const bytes_t available = available_memory(); available < needed)
    refuse(r.name, ": needs ", bytes_text(needed), " of memory, and ", bytes_text(std::max<bytes_t>(available, 0)),
           " are available");

  struct round {
    numbers staged;
    double copy_seconds;
  };
  std::vector<round> all;
  bytes_t wrong = 0;
  const auto steps = static_cast<double>(2 * rounds + 2);
  double step = 0;
  const auto run = [&](measurement kind, const std::string& what) {
    bar.show(text_of(r.name, ": ", what), step / steps);
    const numbers told =
        run_child(r, kind, [&](double part) { bar.show(text_of(r.name, ": ", what), (step + part) / steps); });
    ++step;
    return told;
  };
  for (index_t i = 0; i < rounds; ++i) {
    if (i > 0 && asked_rounds == 0 && std::chrono::steady_clock::now() - begin > std::chrono::seconds(12)) break;
    const std::string of = text_of(", round ", i + 1, " of ", rounds);
    const numbers staged = r.warm ? run(measurement::warm, "switching without a budget, all memory there" + of)
                                  : run(measurement::staged, "switching within the budget" + of);
    wrong += static_cast<bytes_t>(staged.at("wrong"));
    all.push_back({staged, between_processes(r)
                               ? 0
                               : run(measurement::staged_copy, "memcpy with the same pages" + of).at("seconds")});
  }
  const auto least = [&](auto&& seconds_of) {
    return *std::min_element(all.begin(), all.end(),
                             [&](const round& a, const round& b) { return seconds_of(a) < seconds_of(b); });
  };
  result.staged = least([](const round& one) { return one.staged.at("seconds"); }).staged;
  result.copy_seconds = least([](const round& one) { return one.copy_seconds; }).copy_seconds;
  for (const round& one : all)  // the worst of what must hold always
    for (const char* key : {"peak_excess_bytes", "peak_bytes", "vmhwm_bytes"})
      if (one.staged.contains(key)) result.staged[key] = std::max(result.staged[key], one.staged.at(key));
  result.staged["wrong"] = static_cast<double>(wrong);
  if (between_processes(r)) return result;
  step = steps - 2;
  result.warm = run(measurement::warm, "switching without a budget, all memory there");
  result.warm_copy_seconds = run(measurement::warm_copy, "memcpy, all memory there").at("seconds");
  result.staged["wrong"] = static_cast<double>(wrong) + result.warm.at("wrong");
  return result;
}

std::string json_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    char code[8];
    if (c == '"' || c == '\\') result += {'\\', c};
    else if (static_cast<unsigned char>(c) < 32)
      result.append(code, static_cast<std::size_t>(std::snprintf(code, sizeof code, "\\u%04x", c)));
    else result += c;
  }
  return result + "\"";
}

void print_json(const outcome& o) {
  std::string line =
      text_of("{\"switch\":", json_text(o.of.name), ",\"from\":", json_text(o.of.from), ",\"to\":", json_text(o.of.to),
              ",\"ranks\":", static_cast<bytes_t>(o.plan.at("ranks")), ",\"transport\":", json_text(o.of.transport));
  for (const char* key : {"elements", "wrong", "moved_bytes"}) line += text_of(",\"", key, "\":", o.count(key));
  if (o.of.node_devices > 0)
    for (const char* key : {"relayed_bytes", "phases"}) line += text_of(",\"", key, "\":", o.count(key));
  line += text_of(",\"least_bytes\":", static_cast<bytes_t>(o.plan.at("least_bytes")));
  const bool messages = o.of.transport != "threads", processes = between_processes(o.of);
  for (const char* key : {"retained_bytes", "stages"}) line += text_of(",\"", key, "\":", o.count(key));
  const bytes_t unread_kept = o.count("unread_kept_stages");
  line += text_of(",\"unread_kept_stages\":", unread_kept < 0 ? "null" : std::to_string(unread_kept));
  line += text_of(",\"budget_bytes\":", o.of.warm ? "null" : std::to_string(o.of.budget),
                  ",\"peak_excess_bytes\":", o.count("peak_excess_bytes"));
  const auto decimal = [&line](const char* key, double value) {
    char text[64];
    line.append(text, static_cast<std::size_t>(std::snprintf(text, sizeof text, ",\"%s\":%.6f", key, value)));
  };
  decimal("seconds", o.seconds());
  if (!processes) {
    decimal("copy_seconds", o.copy_seconds);
    decimal("ratio", o.ratio());
    decimal("warm_ratio", o.warm_ratio());
    for (const char* key : {"vmhwm_bytes", "vmhwm_bound_bytes"}) line += text_of(",\"", key, "\":", o.count(key));
  }
  if (messages)
    for (const char* key : {"messages", "wire_bytes", "staging_bytes", "lag"})
      line += text_of(",\"", key, "\":", o.count(key));
  if (o.staged.contains("alltoallw_seconds")) {
    decimal("alltoallw_seconds", o.at("alltoallw_seconds"));
    decimal("alltoallw_ratio", o.at("uncut_seconds") / o.at("alltoallw_seconds"));
  }
  std::printf("%s}\n", line.c_str());
  std::fflush(stdout);
}

void print_table(const std::vector<outcome>& all) {
  const auto decimal = [](double value, const char* unit) {
    char text[64];
    return std::string(text, static_cast<std::size_t>(std::snprintf(text, sizeof text, "%.2f%s", value, unit)));
  };
  std::vector<reshard::io::table::column> columns = {{"", reshard::io::table::side::left}};
  for (const outcome& o : all) columns.push_back({o.of.name});
  reshard::io::table t(columns);
  const auto row = [&](const char* what, auto&& cell) {
    std::vector<std::string> cells = {what};
    for (const outcome& o : all) cells.push_back(cell(o));
    t.row(cells);
  };
  row("bytes sent", [](const outcome& o) { return bytes_text(o.count("moved_bytes")); });
  if (all[0].of.node_devices > 0)
    row("  and to be passed on", [](const outcome& o) { return bytes_text(o.count("relayed_bytes")); });
  row("  least possible", [](const outcome& o) { return bytes_text(static_cast<bytes_t>(o.plan.at("least_bytes"))); });
  row("bytes kept", [](const outcome& o) { return bytes_text(o.count("retained_bytes")); });
  row("stages", [](const outcome& o) { return count_text(o.count("stages")); });
  row("peak of a rank", [](const outcome& o) { return bytes_text(o.count("peak_bytes")); });
  row("  its floor, max(before, after)", [](const outcome& o) { return bytes_text(o.count("floor_bytes")); });
  row("  beyond the floor", [](const outcome& o) { return bytes_text(o.count("peak_excess_bytes")); });
  row("  the budget for that", [](const outcome& o) { return bytes_text(o.of.budget); });
  const bool messages = all[0].of.transport != "threads", processes = between_processes(all[0].of);
  if (messages) row("  its arenas", [](const outcome& o) { return bytes_text(o.count("staging_bytes")); });
  if (messages) row("messages", [](const outcome& o) { return count_text(o.count("messages")); });
  if (!processes) {
    row("peak of the process (VmHWM)", [](const outcome& o) { return bytes_text(o.count("vmhwm_bytes")); });
    row("  its bound", [](const outcome& o) { return bytes_text(o.count("vmhwm_bound_bytes")); });
  }
  row("time within the budget", [](const outcome& o) { return seconds_text(o.seconds()); });
  row("  rate", [&](const outcome& o) { return decimal(o.gigabytes() / o.seconds(), " GB/s"); });
  if (!processes) {
    row("  rate of a memcpy, same pages",
        [&](const outcome& o) { return decimal(o.gigabytes() / o.copy_seconds, " GB/s"); });
    row("  of that", [&](const outcome& o) { return decimal(100 * o.ratio(), " %"); });
    row("time without, memory all there", [](const outcome& o) { return seconds_text(o.warm.at("seconds")); });
    row("  rate", [&](const outcome& o) { return decimal(o.gigabytes() / o.warm.at("seconds"), " GB/s"); });
    row("  rate of a memcpy, memory all there",
        [&](const outcome& o) { return decimal(o.gigabytes() / o.warm_copy_seconds, " GB/s"); });
    row("  of that", [&](const outcome& o) { return decimal(100 * o.warm_ratio(), " %"); });
  }
  if (all[0].staged.contains("alltoallw_seconds")) {
    row("time without, memory all there", [](const outcome& o) { return seconds_text(o.at("uncut_seconds")); });
    row("  MPI_Alltoallw", [](const outcome& o) { return seconds_text(o.at("alltoallw_seconds")); });
    row("  of that",
        [&](const outcome& o) { return decimal(100 * o.at("uncut_seconds") / o.at("alltoallw_seconds"), " %"); });
  }
  row("elements compared", [](const outcome& o) { return count_text(o.count("elements")); });
  row("  wrong", [](const outcome& o) { return count_text(o.count("wrong")); });
  for (const outcome& o : all)
    std::printf("%s: %s -> %s, %lld ranks %s%s%s\n", o.of.name.c_str(), o.of.from.c_str(), o.of.to.c_str(),
                static_cast<long long>(o.plan.at("ranks")), processes ? "in processes of their own" : "in one process",
                o.of.to_devices.empty() ? "" : ", to devices ", o.of.to_devices.c_str());
  std::printf("\n%s", t.text().c_str());
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 10 && arguments[0] == "--measure") {
    const auto* const kind = std::find(std::begin(measurement_names), std::end(measurement_names), arguments[1]);
    if (kind == std::end(measurement_names)) refuse("no measurement is called ", arguments[1]);
    measure({{},
             arguments[2],
             arguments[3],
             arguments[4],
             arguments[6],
             arguments[7],
             reshard::io::parse_bytes("--budget", arguments[5]),
             arguments[8],
             arguments[9] == "0" ? 0 : parse_node(arguments[9])},
            static_cast<measurement>(kind - std::begin(measurement_names)));
    return 0;
  }
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::printf("%s\n", usage);
    return 0;
  }
  const request_list requests = parse_arguments(arguments);
  if (requests.fault.what != fault_request::kind::none)
    return run_with_fault(requests.switches[0], requests.fault) ? 0 : 1;
  std::vector<outcome> all;
  bool right = true;
  {
    const progress bar(requests.as == request_list::format::text);
    for (const switch_request& r : requests.switches) {
      all.push_back(measure_all(r, requests.rounds, bar));
      right = right && all.back().at("wrong") == 0;
      if (requests.as == request_list::format::json) print_json(all.back());
    }
  }
  if (requests.as == request_list::format::text) print_table(all);
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run({words + 1, words + count});
  } catch (const child_failed&) {
    return 1;
  } catch (const processes_failed&) {
    return 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
