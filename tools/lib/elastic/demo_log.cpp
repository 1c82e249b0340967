// SPDX-License-Identifier: Apache-2.0
#include "demo_log.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include <reshard/base/refusal.hpp>
#include <reshard/io/print.hpp>

namespace elastic {

using namespace reshard;

namespace {

void take(const nlohmann::json& all, const char* key, index_t& to) {
  if (all.contains(key)) to = all.at(key).get<index_t>();
}
void take(const nlohmann::json& all, const char* key, std::string& to) {
  if (all.contains(key)) to = all.at(key).get<std::string>();
}

/// Of 64 bits; what is more would be taken as a float.
std::uint64_t sum_of(const nlohmann::json& value) { return value.get_ref<const nlohmann::json::number_unsigned_t&>(); }

}  // namespace

log_event parse_event(std::string_view line, const std::string& name) {
  log_event e;
  try {
    const nlohmann::json all = nlohmann::json::parse(line);
    e.t = all.at("t").get<double>(), e.id = all.at("id").get<std::string>(), e.ev = all.at("ev").get<std::string>();
    const std::pair<const char*, index_t*> numbers[] = {
        {"epoch", &e.epoch},           {"step", &e.step},       {"dp", &e.dp},       {"of", &e.of},
        {"begin", &e.begin},           {"end", &e.end},         {"batch", &e.batch}, {"cursor", &e.cursor},
        {"first_step", &e.first_step}, {"version", &e.version}, {"code", &e.code}};
    for (const auto& [key, to] : numbers) take(all, key, *to);
    const std::pair<const char*, std::string*> words[] = {{"layout", &e.layout}, {"why", &e.why},   {"who", &e.who},
                                                          {"by", &e.by},         {"what", &e.what}, {"text", &e.text}};
    for (const auto& [key, to] : words) take(all, key, *to);
    if (all.contains("sum")) e.sum = sum_of(all["sum"]);
    if (all.contains("switch")) e.switched = all["switch"].get<double>();
    if (all.contains("members")) e.members = all["members"].get<std::vector<std::string>>();
    if (all.contains("digests"))
      for (const auto& [tensor, sum] : all["digests"].items()) e.digests[tensor] = sum_of(sum);
  } catch (const nlohmann::json::exception&) {
    refuse("the log of ", name, " has a line that is none of it: ", io::one_line(std::string(line), 120));
  }
  return e;
}

void log_reader::look(look_for what) {
  if (what == look_for::the_end && !std::filesystem::exists(folder_ + "/demo.log")) refuse(folder_, " has no demo.log");
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    if (file.path().extension() != ".log") continue;
    const std::string name = file.path().stem().string();
    std::size_t& read = read_[name];
    std::ifstream in(file.path(), std::ios::binary);
    in.seekg(static_cast<std::streamoff>(read));
    std::ostringstream rest;
    rest << in.rdbuf();
    const std::string text = rest.str();
    std::size_t from = 0;
    for (std::size_t to; (to = text.find('\n', from)) != text.npos; from = to + 1)
      (name == "demo" ? deeds_ : workers_).push_back(parse_event(std::string_view(text).substr(from, to - from), name));
    read += from;
    if (what == look_for::the_end && from < text.size()) refuse("the log of ", name, " ends within a line");
  }
}

}  // namespace elastic
