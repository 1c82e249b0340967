// SPDX-License-Identifier: Apache-2.0
// A cluster as a person writes it: a shape "16x8", a name like a800, or the path of a JSON file
//   {"gpus": 8, "nvlink_GBps": 160, "nics": 8, "nic_GBps": 25, "spine_GBps": null, "copy_GBps": 1300, "message_us": 10,
//    "stage_us": 50, "nodes": [{"count": 12}, {"count": 4, "nics": 4}]}
// of which gpus and three speeds are required. Whatever is not of one of these forms is refused in one sentence.
// Builds on: plan/cluster.hpp, io/arguments.hpp, io/detail/json_of.hpp.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/arguments.hpp>
#include <reshard/io/detail/json_of.hpp>
#include <reshard/plan/cluster.hpp>

namespace reshard::io {

namespace detail {

inline constexpr std::string_view cluster_keys[] = {"gpus",      "nvlink_GBps", "nics",     "nic_GBps", "spine_GBps",
                                                    "copy_GBps", "message_us",  "stage_us", "nodes"};
inline constexpr std::string_view node_keys[] = {"count", "nics", "nic_GBps", "nvlink_GBps", "copy_GBps", "spine_GBps"};

/// The objects of a cluster's file, each value looked at before it is taken; `name` is what sentences call the file.
class cluster_reader {
 public:
  cluster_reader(std::string_view text, std::string_view name) : name_(one_line(name)), file_(json_of(text, name_)) {}

  cluster read() const {
    require_keys(file_, cluster_keys, "a cluster");
    cluster on;
    on.gpus = count(file_, "gpus", device_limit);
    on.each = kind(file_, {}, on.gpus);
    on.each.count = 1;
    for (const char* key : {"nvlink_GBps", "nic_GBps", "copy_GBps"})
      if (!file_.contains(key)) refuse(name_, ": ", key, " is missing");
    on.message_us = number_or(file_, "message_us", on.message_us, zero::allowed);
    on.stage_us = number_or(file_, "stage_us", on.stage_us, zero::allowed);
    if (!file_.contains("nodes")) return on;
    const nlohmann::json& nodes = file_["nodes"];
    if (!nodes.is_array() || nodes.empty()) refuse(name_, ": nodes is ", described(nodes), "; it is a list of nodes");
    for (const nlohmann::json& node : nodes) {
      require_keys(node, node_keys, "an entry of nodes");
      on.nodes.push_back(kind(node, on.each, on.gpus));
      if (on.node_count() > device_limit / on.gpus)
        refuse(name_, ": ", on.node_count(), " nodes of ", on.gpus, " devices are more than ", device_limit,
               " devices");
    }
    return on;
  }

 private:
  enum class zero { refused, allowed };

  static std::string described(const nlohmann::json& value) { return one_line(value.dump(-1, ' ', true), 40); }

  template <std::size_t N>
  void require_keys(const nlohmann::json& object, const std::string_view (&keys)[N], std::string_view what) const {
    if (!object.is_object()) refuse(name_, ": ", what, " is ", described(object), "; it is an object");
    std::string known;
    for (const std::string_view key : keys) known += text_of(known.empty() ? "" : ", ", key);
    for (const auto& [key, value] : object.items())
      if (std::find(std::begin(keys), std::end(keys), key) == std::end(keys))
        refuse(name_, ": ", what, " has the unknown key '", one_line(key, 40), "'; the keys are ", known);
  }
  index_t count(const nlohmann::json& object, const char* key, index_t most) const {
    if (!object.contains(key)) refuse(name_, ": ", key, " is missing");
    const nlohmann::json& value = object[key];
    const bool counts = value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
                        value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
    if (!counts) refuse(name_, ": ", key, " is ", described(value), "; it is a whole number from 1 to ", most);
    return value.get<index_t>();
  }
  double number_or(const nlohmann::json& object, const char* key, double otherwise, zero of_zero) const {
    if (!object.contains(key)) return otherwise;
    const nlohmann::json& value = object[key];
    const double least = of_zero == zero::allowed ? 0 : 1e-9, most = of_zero == zero::allowed ? 1e12 : 1e9;
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= least && number <= most))
      refuse(name_, ": ", key, " is ", described(value),
             of_zero == zero::allowed ? "; it is 0 to 1e12 microseconds" : "; it is above 0, from 1e-9 to 1e9 GB/s");
    return number;
  }
  /// What an object says of nodes, and the rest as it was.
  node_kind kind(const nlohmann::json& object, node_kind as, index_t gpus) const {
    as.count = object.contains("count") ? count(object, "count", device_limit) : 1;
    if (object.contains("nics")) as.nics = count(object, "nics", gpus);
    as.nvlink_GBps = number_or(object, "nvlink_GBps", as.nvlink_GBps, zero::refused);
    as.nic_GBps = number_or(object, "nic_GBps", as.nic_GBps, zero::refused);
    as.copy_GBps = number_or(object, "copy_GBps", as.copy_GBps, zero::refused);
    if (!object.contains("spine_GBps")) return as;
    const nlohmann::json& spine = object["spine_GBps"];
    const bool none = spine.is_number() && spine.get<double>() == 0;
    as.spine_GBps = spine.is_null() ? no_limit : none ? 0 : number_or(object, "spine_GBps", 0, zero::refused);
    return as;
  }

  std::string name_;
  nlohmann::json file_;
};

}  // namespace detail

/// The cluster that a JSON text describes; `name` is what sentences call it.
[[nodiscard]] inline cluster cluster_from_json(std::string_view text, std::string_view name) {
  return detail::cluster_reader(text, name).read();
}

/// A name, a shape, or the path of a JSON file.
[[nodiscard]] inline cluster load_cluster(std::string_view text) {
  std::string names;
  for (const named_cluster& known : all_named_clusters) {
    if (known.name == text) return *known.value;
    names += text_of(names.empty() ? "" : ", ", known.name);
  }
  if (!text.empty() && text.find_first_not_of("0123456789x") == text.npos) {
    const cluster_shape shape = parse_cluster(text);
    cluster on = nodes_of(shape.node_devices);
    on.nodes = {{.count = shape.nodes}};
    return on;
  }
  constexpr std::size_t most_bytes = std::size_t{1} << 20;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(std::string(text).c_str(), "rb"), std::fclose);
  if (file == nullptr && errno == ENOENT && text.find('/') == text.npos && !text.ends_with(".json"))
    refuse("--cluster: '", one_line(text, 40), "' is neither a name (", names,
           "), nor of the form NODESxGPUS, like 16x8, nor a file");
  std::string content(most_bytes + 1, ' ');
  if (file != nullptr) content.resize(std::fread(content.data(), 1, content.size(), file.get()));
  if (file == nullptr || std::ferror(file.get()) != 0)
    refuse(one_line(text), " cannot be read: ", std::strerror(errno));
  if (content.size() > most_bytes)
    refuse(one_line(text), " is larger than ", static_cast<index_t>(most_bytes), " bytes, so it is no cluster");
  return cluster_from_json(content, text);
}

}  // namespace reshard::io
