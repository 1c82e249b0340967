// SPDX-License-Identifier: Apache-2.0
// A trace of jobs as a file:
//   {"devices": 128, "jobs": [{"submit": 0, "requested": 4, "min": 2, "max": 8, "samples": 1e6,
//                              "throughput": {"2": 90, "3": 130, ..}, "name": "vision"}, ..]}
// Every key but the name is required, others are passed over. The throughput is told from min to max: by n; as pairs
// [[2, 90], [3, 130], ..]; or as a list that begins with one device. What is not of this form is refused in one
// sentence.
// Builds on: io/detail/json_of.hpp, io/text_output.hpp, queue/job_trace.hpp.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/detail/json_of.hpp>
#include <reshard/io/print.hpp>
#include <reshard/io/text_output.hpp>
#include <reshard/queue/job_trace.hpp>

namespace reshard::io {

namespace detail {

/// The objects of a trace's file, each value looked at before it is taken; `name` is what sentences call the file.
class job_trace_reader {
 public:
  job_trace_reader(std::string_view text, std::string_view name) : name_(one_line(name)), file_(json_of(text, name_)) {}

  job_trace read() const {
    job_trace trace;
    trace.devices = count(member(file_, "the trace", "devices"), "devices", max_trace_devices);
    const nlohmann::json& jobs = member(file_, "the trace", "jobs");
    if (!jobs.is_array()) refuse(name_, ": jobs is ", described(jobs), "; it is a list of jobs");
    if (jobs.size() > static_cast<std::size_t>(max_trace_jobs))
      refuse(name_, ": there are ", jobs.size(), " jobs; at most ", max_trace_jobs, " are scheduled");
    for (const nlohmann::json& one : jobs) trace.jobs.push_back(job(one, text_of("job ", trace.jobs.size())));
    try {
      require_sound(trace);
    } catch (const refusal& why) {
      refuse(name_, ": ", reshard::detail::without_prefix(why.what()));
    }
    return trace;
  }

 private:
  static std::string described(const nlohmann::json& value) {
    if (value.is_structured() && value.size() > 8) return value.is_array() ? "a list" : "an object";
    return one_line(value.dump(-1, ' ', true), 40);
  }
  const nlohmann::json& member(const nlohmann::json& object, const std::string& what, const char* key) const {
    if (!object.is_object()) refuse(name_, ": ", what, " is ", described(object), "; it is an object");
    const auto found = object.find(key);
    if (found == object.end()) refuse(name_, ": ", what, ": ", key, " is missing");
    return *found;
  }
  index_t count(const nlohmann::json& value, const std::string& what, index_t most) const {
    const bool counts = value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
                        value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
    if (!counts) refuse(name_, ": ", what, " is ", described(value), "; it is a whole number from 1 to ", most);
    return value.get<index_t>();
  }
  double number(const nlohmann::json& value, const std::string& what) const {
    if (!value.is_number()) refuse(name_, ": ", what, " is ", described(value), "; it is a number");
    return value.get<double>();
  }

  traced_job job(const nlohmann::json& object, const std::string& what) const {
    traced_job one;
    one.submit = number(member(object, what, "submit"), what + ": submit");
    for (const auto& [key, to] : {std::pair("requested", &one.requested), {"min", &one.min}, {"max", &one.max}})
      *to = count(member(object, what, key), text_of(what, ": ", key), 1'000'000);
    one.samples = number(member(object, what, "samples"), what + ": samples");
    const nlohmann::json& table = member(object, what, "throughput");
    if (!table.is_structured())
      refuse(name_, ": ", what, ": throughput is ", described(table), "; it is samples a second by devices");
    std::vector<bool> told;  // by n: 0 may be told
    const auto add = [&](index_t n, const nlohmann::json& value) {
      if (n < 1 || n > max_trace_devices)
        refuse(name_, ": ", what, ": throughput with ", n, " devices; they are 1 to ", max_trace_devices);
      const auto at = static_cast<std::size_t>(n);
      if (at >= told.size()) one.throughput.resize(at + 1, 0), told.resize(at + 1, false);
      if (told[at]) refuse(name_, ": ", what, ": throughput with ", n, " devices is told twice");
      told[at] = true;
      one.throughput[at] = number(value, text_of(what, ": throughput with ", n, n == 1 ? " device" : " devices"));
    };
    if (table.is_object())
      for (const auto& [n, value] : table.items()) add(devices_of(n, what), value);
    else
      for (std::size_t i = 0; i < table.size(); ++i) {
        if (!table[i].is_array()) {
          add(static_cast<index_t>(i) + 1, table[i]);
          continue;
        }
        if (table[i].size() != 2)
          refuse(name_, ": ", what, ": throughput has ", described(table[i]),
                 "; a pair is [devices, samples a second]");
        add(count(table[i][0], text_of(what, ": throughput's devices"), max_trace_devices), table[i][1]);
      }
    if (const auto said = object.find("name"); said != object.end()) {
      if (!said->is_string()) refuse(name_, ": ", what, ": name is ", described(*said), "; it is a text");
      one.name = said->get<std::string>();
    }
    return one;
  }
  /// A key of a throughput that is an object.
  index_t devices_of(std::string_view key, const std::string& what) const {
    index_t n = 0;
    for (const char c : key) {
      if (c < '0' || c > '9' || n > max_trace_devices) return refuse_key(key, what);
      n = 10 * n + (c - '0');
    }
    if (key.empty() || key[0] == '0') return refuse_key(key, what);
    return n;
  }
  index_t refuse_key(std::string_view key, const std::string& what) const {
    refuse(name_, ": ", what, ": throughput with '", one_line(key, 40), "' devices; they are 1 to ", max_trace_devices);
  }

  std::string name_;
  nlohmann::json file_;
};

}  // namespace detail

/// The trace that a JSON text describes; `name` is what sentences call it.
[[nodiscard]] inline job_trace job_trace_from_json(std::string_view text, std::string_view name) {
  return detail::job_trace_reader(text, name).read();
}

/// The trace in a file.
[[nodiscard]] inline job_trace load_job_trace(std::string_view path) {
  constexpr std::size_t most_bytes = std::size_t{1} << 25;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(std::string(path).c_str(), "rb"), std::fclose);
  std::string content;
  if (file != nullptr)
    for (char part[1 << 16]; content.size() <= most_bytes;) {
      const std::size_t read = std::fread(part, 1, sizeof part, file.get());
      if (read == 0) break;
      content.append(part, read);
    }
  if (file == nullptr || std::ferror(file.get()) != 0)
    refuse(one_line(path), " cannot be read: ", std::strerror(errno));
  if (content.size() > most_bytes)
    refuse(one_line(path), " is larger than ", static_cast<index_t>(most_bytes), " bytes, so it is no trace of jobs");
  return job_trace_from_json(content, path);
}

/// What job_trace_from_json reads, a job on each line; the throughput as pairs from min on.
inline void write_job_trace(text_output& out, const job_trace& trace) {
  out << "{\"devices\":" << trace.devices << ",\"jobs\":[";
  json_items jobs(out);
  for (const traced_job& job : trace.jobs) {
    jobs.next() << "\n{\"submit\":" << job.submit << ",\"requested\":" << job.requested << ",\"min\":" << job.min
                << ",\"max\":" << job.max << ",\"samples\":" << job.samples << ",\"throughput\":[";
    json_items pairs(out);
    for (index_t n = job.min; n <= least(job.max, std::ssize(job.throughput) - 1); ++n)
      pairs.next() << "[" << n << "," << job.throughput[static_cast<std::size_t>(n)] << "]";
    out << "]";
    if (!job.name.empty())
      out << ",\"name\":" << nlohmann::json(job.name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    out << "}";
  }
  out << "\n]}\n";
}

}  // namespace reshard::io
