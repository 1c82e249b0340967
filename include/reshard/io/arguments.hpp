// SPDX-License-Identifier: Apache-2.0
// The written forms of what the command line takes: lists of devices "0-2,8,12-15", clusters "16x8", bytes "64MiB",
// states, ranks. Every text that is not of its form is refused in one sentence.
// Builds on: io/print.hpp, model/state_list.hpp.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/io/print.hpp>
#include <reshard/model/state_list.hpp>

namespace reshard::io {

/// One past the largest device number that a list may name; an answer has a figure for every device.
inline constexpr rank_t device_limit = rank_t{1} << 22;

namespace detail {
/// A decimal number of digits only, 0 <= number < 2^63; `what` begins the sentence that refuses anything else.
inline index_t digits_of(std::string_view what, std::string_view text) {
  if (text.empty()) refuse(what, ": a number is missing");
  index_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') refuse(what, ": '", one_line(text, 40), "' is not a number");
    if (__builtin_mul_overflow(number, index_t{10}, &number) || __builtin_add_overflow(number, c - '0', &number))
      refuse(what, ": ", one_line(text, 40), " does not fit 64 bits");
  }
  return number;
}
/// The number that digits write, below 2^64; refuses anything else, in a sentence that begins with `what`.
inline std::uint64_t unsigned_digits_of(std::string_view what, std::string_view text) {
  if (text.empty()) refuse(what, ": a number is missing");
  std::uint64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') refuse(what, ": '", one_line(text, 40), "' is not a number");
    if (__builtin_mul_overflow(number, std::uint64_t{10}, &number) || __builtin_add_overflow(number, c - '0', &number))
      refuse(what, ": ", one_line(text, 40), " does not fit 64 bits without a sign");
  }
  return number;
}
}  // namespace detail

/// A rank of a world; or a device of several, where `what` says so.
inline rank_t parse_rank(std::string_view text, rank_t ranks, std::string_view what = "rank") {
  const rank_t rank = detail::digits_of("--rank", text);
  if (rank >= ranks) refuse("--rank: there is no ", what, " ", rank, "; ", what, "s are 0 to ", ranks - 1);
  return rank;
}

/// One of the states by name, `optimizer` (all of level 1) or `all`.
inline state_set parse_states(std::string_view text, const state_list& list = adam) {
  if (const state_set named = list.named(text); !named.empty()) return named;
  const state_set optimizer = list.all().of(role::optimizer);
  if (text == "optimizer" && !optimizer.empty()) return optimizer;
  if (text == "all") return list.all();
  refuse("--state: '", one_line(text, 40), "' is unknown; it is ", reshard::detail::state_names(list, ", "),
         optimizer.empty() ? " or all" : ", optimizer or all");
}

namespace detail {
/// "0-2,8,12-15" as the runs that are written.
inline std::vector<interval> device_runs(std::string_view what, std::string_view text) {
  std::vector<interval> runs;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t dash = item.find('-');
    const rank_t first = digits_of(what, item.substr(0, dash));
    const rank_t last = dash == item.npos ? first : digits_of(what, item.substr(dash + 1));
    if (last < first) refuse(what, ": the range ", first, "-", last, " runs backwards");
    if (last >= device_limit) refuse(what, ": device ", last, " is too large; devices are 0 to ", device_limit - 1);
    runs.push_back({first, last + 1});
    if (comma == text.npos) return runs;
    text.remove_prefix(comma + 1);
  }
}
/// The devices of the runs, in their order, none of them twice.
inline std::vector<rank_t> devices_of_runs(std::string_view what, const std::vector<interval>& runs) {
  std::vector<interval> sorted = runs;
  std::sort(sorted.begin(), sorted.end(), [](interval a, interval b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i].begin < sorted[i - 1].end) refuse(what, ": device ", sorted[i].begin, " is listed twice");
  std::vector<rank_t> devices;
  for (const interval& run : runs)
    for (rank_t device = run.begin; device < run.end; ++device) devices.push_back(device);
  return devices;
}
}  // namespace detail

/// "0-2,8,12-15": the device of every rank, in rank order. `what` names the list in sentences; it must have `ranks`
/// devices.
inline std::vector<rank_t> parse_device_list(std::string_view what, std::string_view text, rank_t ranks) {
  if (text.empty()) refuse(what, ": the list is empty, but there are ", ranks, " ranks");
  const std::vector<interval> runs = detail::device_runs(what, text);
  index_t count = 0;
  for (const interval& run : runs) count = checked_add(count, run.size());
  if (count != ranks) refuse(what, ": ", count, " devices are listed for ", ranks, ranks == 1 ? " rank" : " ranks");
  return detail::devices_of_runs(what, runs);
}

/// "3,7" or "4-7": some devices, none twice.
inline std::vector<rank_t> parse_devices(std::string_view what, std::string_view text) {
  return detail::devices_of_runs(what, detail::device_runs(what, text));
}

/// "0,500,1000": samples, in any order; at most 4096.
inline std::vector<index_t> parse_samples(std::string_view what, std::string_view text) {
  constexpr std::size_t most_samples = 4096;
  std::vector<index_t> samples;
  while (true) {
    const std::size_t comma = text.find(',');
    if (samples.size() == most_samples) refuse(what, ": more than ", most_samples, " samples are listed");
    samples.push_back(detail::digits_of(what, text.substr(0, comma)));
    if (comma == text.npos) return samples;
    text.remove_prefix(comma + 1);
  }
}

/// Nodes of equal size.
struct cluster_shape {
  index_t nodes = 1;
  index_t node_devices = 1;
  constexpr rank_t devices() const { return checked_multiply(nodes, node_devices); }
};

/// "16x8": nodes x devices of a node.
inline cluster_shape parse_cluster(std::string_view text) {
  const std::size_t x = text.find('x');
  if (x == text.npos) refuse("--cluster: '", one_line(text, 40), "' is not of the form NODESxGPUS, like 16x8");
  const cluster_shape shape{detail::digits_of("--cluster", text.substr(0, x)),
                            detail::digits_of("--cluster", text.substr(x + 1))};
  if (shape.nodes < 1 || shape.node_devices < 1)
    refuse("--cluster: ", shape.nodes, " nodes of ", shape.node_devices, " devices; both are at least 1");
  if (shape.nodes > device_limit || shape.node_devices > device_limit || shape.devices() > device_limit)
    refuse("--cluster: ", shape.nodes, " nodes of ", shape.node_devices, " devices are more than ", device_limit,
           " devices");
  return shape;
}

namespace detail {
/// Refuses a count of bytes whose unit is none; 64M might be 64MB or 64MiB.
[[noreturn]] inline void refuse_unit(std::string_view what, std::string_view text, index_t count, char letter) {
  constexpr std::string_view units = "units are B, kB, MB, GB, TB, KiB, MiB, GiB and TiB", letters = "KMGT";
  const std::size_t power = letters.find(letter >= 'a' ? static_cast<char>(letter - 'a' + 'A') : letter);
  if (power == letters.npos) refuse(what, ": '", one_line(text, 40), "' has an unknown unit; ", units);
  bytes_t decimal = count, binary = count;
  for (std::size_t i = 0; i <= power; ++i) {
    decimal = checked_multiply(decimal, 1000);
    binary = checked_multiply(binary, 1024);
  }
  const std::string prefixed = text_of(count, letters.substr(power, 1));
  refuse(what, ": '", one_line(text, 40), "' may be ", prefixed, "B, which is ", decimal, " bytes, or ", prefixed,
         "iB, which is ", binary, "; ", units);
}
}  // namespace detail

/// "67108864", "64MiB", "1 GB": bytes, at least 1.
inline bytes_t parse_bytes(std::string_view what, std::string_view text) {
  struct unit_of_bytes {
    std::string_view suffix;
    bytes_t bytes;
  };
  constexpr unit_of_bytes units[] = {{"KiB", bytes_t{1} << 10},
                                     {"MiB", bytes_t{1} << 20},
                                     {"GiB", bytes_t{1} << 30},
                                     {"TiB", bytes_t{1} << 40},
                                     {"kB", 1'000},
                                     {"KB", 1'000},
                                     {"MB", 1'000'000},
                                     {"GB", 1'000'000'000},
                                     {"TB", 1'000'000'000'000},
                                     {"B", 1}};
  const std::string_view digits = text.substr(0, text.find_first_not_of("0123456789"));
  const std::string_view suffix = text.substr(std::min(text.find_first_not_of(' ', digits.size()), text.size()));
  const auto* const named =
      std::find_if(std::begin(units), std::end(units), [&](const auto& u) { return u.suffix == suffix; });
  const bool known = named != std::end(units);
  const char letter = suffix.empty() ? ' ' : suffix[0];
  if (!known && !digits.empty() && (('a' <= letter && letter <= 'z') || ('A' <= letter && letter <= 'Z')))
    detail::refuse_unit(what, text, detail::digits_of(what, digits), letter);
  const bytes_t unit = known ? named->bytes : 1;
  bytes_t bytes = detail::digits_of(what, known ? digits : text);
  if (__builtin_mul_overflow(bytes, unit, &bytes)) refuse(what, ": ", one_line(text, 40), " does not fit 64 bits");
  if (bytes < 1) refuse(what, ": it must be at least 1 byte");
  return bytes;
}

/// Writes a whole file; refused where it cannot be.
inline void write_file(std::string_view path, std::string_view content) {
  std::FILE* file = std::fopen(std::string(path).c_str(), "wb");
  if (file == nullptr) refuse(one_line(path), " cannot be written: ", std::strerror(errno));
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  if (std::fclose(file) != 0 || !written) refuse(one_line(path), " cannot be written: ", std::strerror(errno));
}

}  // namespace reshard::io
