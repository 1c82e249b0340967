// SPDX-License-Identifier: Apache-2.0
// The log of one worker, a JSON object a line, one write each; and the faults that it inflicts on itself where it comes
// to a point of the protocol.
#pragma once

#include <atomic>
#include <cstdio>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <reshard/elastic/job_calls.hpp>
#include <reshard/io/text_output.hpp>

namespace elastic {

using namespace reshard;

/// A signal at the n-th time at a point.
struct fault_at {
  std::string where = {};
  long left = 1;
  int signal = 0;
};

/// "acked" or "acked:3"; stages have a number of their own: "stage:0:2". Refused: a count that is none.
fault_at parse_fault(const std::string& text, int signal);

class worker_log : public job_watcher {
 public:
  worker_log(const std::string& path, const member_name& id, std::vector<fault_at> faults)
      : id_(id.text()), faults_(std::move(faults)),
        file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
    if (file_ < 0) refuse("--log: ", path, " cannot be written");
  }
  worker_log(const worker_log&) = delete;
  ~worker_log() override { ::close(file_); }

  void at(std::string_view where) override {
    for (fault_at& f : faults_) {
      if (f.where != where) continue;
      const std::lock_guard lock(mutex_);
      if (--f.left != 0) continue;
      line("point", "\"where\":" + quoted(where));
      ::raise(f.signal);
    }
  }
  void entered(const world& w, std::string_view why, double switch_seconds) override {
    std::string members;
    for (const member_name& one : w.members) members += (members.empty() ? "" : ",") + quoted(one.text());
    line("world", text("\"epoch\":", w.epoch, ",\"members\":[", members, "],\"layout\":", quoted(to_text(w.layout)),
                       ",\"first_step\":", w.first_step, ",\"cursor\":", w.cursor, ",\"batch\":", w.batch,
                       ",\"why\":", quoted(why), ",\"switch\":", seconds(switch_seconds)));
  }
  void samples(index_t epoch, const sample_share& s) override {
    line("samples", text("\"epoch\":", epoch, ",\"step\":", s.step, ",\"dp\":", s.dp, ",\"of\":", s.of,
                         ",\"begin\":", s.samples.begin, ",\"end\":", s.samples.end));
  }
  void step(index_t epoch, index_t step, std::uint64_t sum) {
    line("step", text("\"epoch\":", epoch, ",\"step\":", step, ",\"sum\":", sum));
  }
  void stopped(index_t step, double waited) override {
    line("boundary", text("\"step\":", step, ",\"waited\":", seconds(waited)));
  }
  void gone(const member_name& who, std::string_view by, double after) override {
    line("gone", text("\"who\":", quoted(who.text()), ",\"by\":", quoted(by), ",\"after\":", seconds(after)));
  }
  void broken(index_t epoch, std::string_view why, index_t version) override {
    line("broken", text("\"epoch\":", epoch, ",\"why\":", quoted(why), ",\"version\":", version));
  }
  void failed(const std::string& sentence) override { std::fprintf(stderr, "%s: %s\n", id_.c_str(), sentence.c_str()); }
  void slow(const member_list& who, const std::string& why) override {
    std::fprintf(stderr, "%s: %s: %s\n", id_.c_str(), members_text(who).c_str(), why.c_str());
  }
  void waiting(const std::string& why) override {
    std::fprintf(stderr, "%s: the job waits for somebody to come: %s\n", id_.c_str(), why.c_str());
  }
  void answered(const member_name& request, std::string_view answer) override {
    line("answer", text("\"request\":", quoted(request.text()), ",\"text\":", quoted(answer)));
  }

  /// {"t":12.345678901,"id":"a","ev":"step",..}
  void line(std::string_view event, const std::string& fields) const {
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    char t[40];
    std::snprintf(t, sizeof t, "%lld.%09ld", static_cast<long long>(now.tv_sec), now.tv_nsec);
    const std::string all = text("{\"t\":", static_cast<const char*>(t), ",\"id\":", quoted(id_), ",\"ev\":\"", event,
                                 "\"", fields.empty() ? "" : ",", fields, "}\n");
    static_cast<void>(::write(file_, all.data(), all.size()));
  }
  template <typename... Parts>
  static std::string text(const Parts&... parts) {
    return reshard::detail::text_of(parts...);
  }
  static std::string quoted(std::string_view of) {
    std::string all = "\"";
    for (const char c : of) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') all += '\\';
      if (byte >= ' ') all += c;
      else all += ' ';
    }
    return all + "\"";
  }
  static std::string seconds(double s) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9f", s);
    return digits;
  }

 private:
  std::string id_;
  std::vector<fault_at> faults_;
  std::mutex mutex_;
  int file_;
};

}  // namespace elastic
