// SPDX-License-Identifier: Apache-2.0
// Sentences, settings, dice and counts.
#include "rules.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "emulation.hpp"

namespace emulation {
namespace {

struct failure_asked {
  long nth;  // calls of the function, from the first of the process
  int code;
};
/// Never destroyed: threads of the device may outlive main.
struct shared_rules {
  std::mutex lock;
  std::vector<counted*> functions;
  std::map<std::string, std::vector<failure_asked>> failures;
  std::uint64_t seed = static_cast<std::uint64_t>(setting("EMULATION_SEED", 1)), mixed = 0, names = 0;
  dice* host = nullptr;
  pid_t process = 0;
  long met = 0;
  bool failures_read = false;
};
shared_rules& rules() {
  static shared_rules* all = new shared_rules;
  return *all;
}
thread_local bool device_thread = false;
thread_local int visits = 0;

long calls_so_far(const std::string& function) {
  for (const counted* f : rules().functions)
    if (f->name() == function) return f->calls();
  return 0;
}
void ask(const std::string& function, long nth, int code) {
  rules().failures[function].push_back({calls_so_far(function) + nth, code});
}
/// EMULATION_FAIL=function:n[:code][,..]
void read_failures() {
  rules().failures_read = true;
  const char* text = std::getenv("EMULATION_FAIL");
  if (text == nullptr) return;
  std::string rest = text;
  while (!rest.empty()) {
    const std::string one = rest.substr(0, rest.find(','));
    rest = one.size() == rest.size() ? "" : rest.substr(one.size() + 1);
    const std::size_t colon = one.find(':');
    if (colon == one.npos) stop("EMULATION_FAIL says \"" + one + "\", and not function:n");
    char* end = nullptr;
    const long nth = std::strtol(one.c_str() + colon + 1, &end, 10);
    ask(one.substr(0, colon), nth, *end == ':' ? static_cast<int>(std::strtol(end + 1, nullptr, 10)) : 0);
  }
}
std::uint64_t mixed(std::uint64_t x) {  // splitmix64's step
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

namespace {
[[noreturn]] void end_with(const char* line, std::size_t length) {
  static_cast<void>(!::write(2, line, length));
  if (const char* log = std::getenv("EMULATION_LOG"))
    if (const int fd = ::open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600); fd >= 0)
      static_cast<void>(!::write(fd, line, length));
  ::_exit(stopped_code);
}
}  // namespace
void stop(const std::string& sentence) {
  const std::string line = "emulation: " + sentence + "\n";
  end_with(line.data(), line.size());
}
void stop_at_fault(const char* words, std::uintptr_t address) {
  char line[256] = "emulation: ";
  std::size_t n = std::strlen(line);
  for (const char* text : {words, ", at 0x"})
    for (; *text != 0 && n < sizeof line - 20; ++text) line[n++] = *text;
  for (int shift = 44; shift >= 0; shift -= 4) line[n++] = "0123456789abcdef"[(address >> shift) & 15];
  line[n++] = '\n';
  end_with(line, n);
}

long setting(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return otherwise;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end != 0) stop(std::string(name) + " is \"" + text + "\", and not a whole number");
  return value;
}
bool setting_is(const char* name, const char* value) {
  const char* text = std::getenv(name);
  return text != nullptr && std::strcmp(text, value) == 0;
}
clock::duration patience() {
  static const long milliseconds = setting("EMULATION_PATIENCE_MS", 10'000);
  return std::chrono::milliseconds(milliseconds);
}

dice::dice(std::uint64_t name) : state_(mixed(rules().seed * 0x9e3779b97f4a7c15u + mixed(name) + rules().mixed)) {}
std::uint64_t dice::next() { return mixed(state_ += 0x9e3779b97f4a7c15u); }
std::uint64_t draw(std::uint64_t below) {
  const std::lock_guard hold(rules().lock);
  if (rules().host == nullptr) rules().host = new dice(0);
  return rules().host->below(below);
}
std::uint64_t next_name() {
  const std::lock_guard hold(rules().lock);
  return ++rules().names;
}
void mix_seed(std::uint64_t number) {
  const std::lock_guard hold(rules().lock);
  rules().mixed = mixed(number + 77);
  delete rules().host;
  rules().host = nullptr;
}
void seed(std::uint64_t number) {
  const std::lock_guard hold(rules().lock);
  rules().seed = number;
  delete rules().host;
  rules().host = nullptr;
}
std::chrono::microseconds some_time(dice& from) {
  static const long most = setting("EMULATION_DELAY_US", 200);
  if (most <= 0 || from.one_in(3)) return std::chrono::microseconds(0);
  const std::uint64_t scale = from.one_in(16) ? 8 : 1;
  return std::chrono::microseconds(from.below(static_cast<std::uint64_t>(most) * scale + 1));
}
void take_time(dice& from) {
  if (const auto time = some_time(from); time.count() > 0) std::this_thread::sleep_for(time);
}

void is_device_thread() { device_thread = true; }
bool on_device_thread() { return device_thread; }

visit::visit() { ++visits; }
visit::~visit() { --visits; }
bool is_inside() { return visits > 0 || device_thread; }

counted::counted(const char* name) : name_(name) {
  const std::lock_guard hold(rules().lock);
  if (!rules().failures_read) read_failures();
  rules().functions.push_back(this);
}
int counted::fails(int usual_code) {
  if (device_thread) stop(std::string(name_) + " was called by work of a stream, which may not call CUDA or NCCL");
  int code = 0;
  bool first = false;
  {
    const std::lock_guard hold(rules().lock);
    if (rules().process == 0) rules().process = ::getpid(), first = true;
    if (rules().process != ::getpid())
      stop(std::string(name_) + " was called after a fork of a process that uses CUDA");
    const long call = calls_.load(std::memory_order_relaxed) + 1;
    calls_.store(call, std::memory_order_relaxed);
    if (const auto asked = rules().failures.find(name_); asked != rules().failures.end())
      for (const failure_asked& f : asked->second)
        if (f.nth == call) code = f.code != 0 ? f.code : usual_code, ++rules().met;
  }
  if (first) watch_exit();
  return code;
}

void fail(const std::string& function, long nth, int code) {
  const std::lock_guard hold(rules().lock);
  ask(function, nth, code);
}
long failures_met() {
  const std::lock_guard hold(rules().lock);
  return rules().met;
}
std::vector<call_count> counts() {
  const std::lock_guard hold(rules().lock);
  std::vector<call_count> all;
  for (const counted* f : rules().functions) all.push_back({f->name(), f->calls()});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.function < b.function; });
  return all;
}
void write_counts() {
  const char* file = std::getenv("EMULATION_COUNTS");
  if (file == nullptr) return;
  std::string text;
  for (const call_count& c : counts())
    text += std::to_string(::getpid()) + " " + c.function + " " + std::to_string(c.calls) + "\n";
  if (const int fd = ::open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600); fd >= 0) {
    static_cast<void>(!::write(fd, text.data(), text.size()));
    ::close(fd);
  }
}

std::string plural(std::size_t n, const std::string& word) {
  return std::to_string(n) + " " + word + (n == 1 ? "" : "s");
}
std::string address_text(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  return text;
}

}  // namespace emulation
