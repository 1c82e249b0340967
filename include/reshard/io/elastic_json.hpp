// SPDX-License-Identifier: Apache-2.0
// `reshard elastic machine`, `standing` and `decide`: the table of a job's state machine, the version after a death,
// and what a policy does in a situation. They are asked
//   [{"member": NAME, "version": v or null, "stage": 0 to 2}, ..]
//   {"policy": {"rungs": [..], "factor", "windows", "wait", "min", "axes"},
//    "situation": {"model", "layout", "version", "members": [{"name", "dead", "empty", "steps": [seconds, ..]}, ..],
//                  "spares": [NAME, ..], "waited", "snapshots": [{"of", "at", "version"}, ..],
//                  "checkpoint": {"name", "version"}}}
// Builds on: elastic/decide.hpp, elastic/machine.hpp, io/detail/strict_json.hpp, io/hf_config.hpp,
// io/record_json.hpp, io/text_output.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <reshard/elastic/decide.hpp>
#include <reshard/elastic/machine.hpp>
#include <reshard/io/detail/strict_json.hpp>
#include <reshard/io/hf_config.hpp>
#include <reshard/io/record_json.hpp>
#include <reshard/io/text_output.hpp>

namespace reshard::io {

/// {"phases":[..],"events":[..],"table":[{"from","event","to","epoch":0|1},..]}
inline void write_machine_json(text_output& out) {
  const auto names = [&](const char* key, const auto& list) {
    out << key << "[";
    json_items items(out);
    for (const std::string_view one : list) items.next() << "\"" << one << "\"";
  };
  names("{\"phases\":", job_phase_names);
  names("],\"events\":", job_event_names);
  out << "],\"table\":[";
  json_items rows(out);
  for (const job_transition& row : job_table)
    rows.next() << "{\"from\":\"" << name(row.from) << "\",\"event\":\"" << name(row.event) << "\",\"to\":\""
                << name(row.to) << "\",\"epoch\":" << row.epoch << "}";
  out << "]}\n";
}

namespace detail {

inline constexpr std::size_t most_members = 4096;

inline member_name name_of(const strict_json& file, const nlohmann::json& v, std::string_view what) {
  if (!v.is_string()) file.refuse_text(what, " is ", strict_json::described(v), "; it is a name");
  try {
    return member_name(v.get<std::string>());
  } catch (const refusal& why) {
    file.refuse_text(what, ": ", reshard::detail::without_prefix(why.what()));
  }
}
inline const nlohmann::json& few(const strict_json& file, const nlohmann::json& list, std::string_view what) {
  if (list.size() > most_members)
    file.refuse_text(what, " has ", list.size(), " entries; at most ", most_members, " are looked at");
  return list;
}
inline double number_or(const strict_json& file, const nlohmann::json& object, const char* key, double otherwise) {
  if (!object.contains(key)) return otherwise;
  const nlohmann::json& v = object[key];
  if (!v.is_number() || v.get<double>() < 0)
    file.refuse_text(key, " is ", strict_json::described(v), "; it is a number, 0 or more");
  return v.get<double>();
}
inline bool flag(const strict_json& file, const nlohmann::json& object, const char* key) {
  if (!object.contains(key)) return false;
  if (!object[key].is_boolean())
    file.refuse_text(key, " is ", strict_json::described(object[key]), "; it is true or false");
  return object[key].get<bool>();
}
inline std::string word(const strict_json& file, const nlohmann::json& object, const char* key) {
  const nlohmann::json& v = file.at(object, key);
  if (!v.is_string()) file.refuse_text(key, " is ", strict_json::described(v), "; it is a text");
  return v.get<std::string>();
}
inline std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace detail

/// Reads standings; `name` is what sentences call the text.
[[nodiscard]] inline std::vector<standing> standings_from_json(std::string_view text, std::string_view name) {
  const detail::strict_json file(text, name);
  if (!file.root().is_array())
    file.refuse_text("a question about standings is ", detail::strict_json::described(file.root()),
                     "; it is a list of objects with member, version and stage");
  std::vector<standing> told;
  for (const nlohmann::json& one : detail::few(file, file.root(), "the list of standings")) {
    file.require_keys(one, {"member", "version", "stage"}, "a standing");
    const bool nothing = file.at(one, "version").is_null();
    told.push_back({detail::name_of(file, file.at(one, "member"), "member"),
                    nothing ? holds_nothing : file.whole(one, "version", 0, detail::most_whole - 1),
                    static_cast<update_stage>(file.whole(one, "stage", 0, 2))});
  }
  return told;
}

/// {"target":v,"updates":[..],"empty":[..],"refused":null}; target is null where standings are refused by a sentence.
inline void write_target_json(text_output& out, const target_version& to) {
  out << "{\"target\":";
  if (to.refused.empty()) out << to.version;
  else out << "null";
  out << ",\"updates\":";
  detail::write_names(out, to.updates);
  out << ",\"empty\":";
  detail::write_names(out, to.empty);
  out << ",\"refused\":" << (to.refused.empty() ? "null" : detail::quoted(to.refused)) << "}\n";
}

/// A policy and a situation.
struct decide_question {
  elastic_policy policy = {};
  elastic_situation situation = {};
};

namespace detail {

inline elastic_policy policy_from(const strict_json& file, const nlohmann::json& object) {
  file.require_keys(object, {"rungs", "factor", "windows", "wait", "min", "axes"}, "policy");
  elastic_policy p;
  if (object.contains("rungs")) {
    p.rungs.clear();
    for (const nlohmann::json& one : file.list(object, "rungs", "names of rungs")) {
      const auto* const known =
          std::find(std::begin(rung_names), std::end(rung_names), one.is_string() ? one.get<std::string>() : "");
      if (known == std::end(rung_names))
        file.refuse_text("a rung is ", strict_json::described(one),
                         "; rungs are hot, replace, shrink, snapshot, checkpoint and wait");
      const auto which = static_cast<rung>(known - std::begin(rung_names));
      if (std::find(p.rungs.begin(), p.rungs.end(), which) != p.rungs.end())
        file.refuse_text("the rung ", *known, " is there twice");
      p.rungs.push_back(which);
    }
  }
  p.factor = number_or(file, object, "factor", p.factor);
  p.wait = number_or(file, object, "wait", p.wait);
  p.windows = file.whole_or(object, "windows", p.windows, 1);
  p.min = file.whole_or(object, "min", p.min, 1);
  if (object.contains("axes")) p.axes = parse_axes(word(file, object, "axes"));
  return p;
}
inline seen_member member_from(const strict_json& file, const nlohmann::json& object) {
  file.require_keys(object, {"name", "dead", "empty", "steps"}, "a member");
  seen_member m{name_of(file, file.at(object, "name"), "name"), flag(file, object, "dead"),
                flag(file, object, "empty")};
  if (object.contains("steps"))
    for (const nlohmann::json& one : few(file, file.list(object, "steps", "seconds"), "steps")) {
      if (!one.is_number() || one.get<double>() < 0)
        file.refuse_text("a step took ", strict_json::described(one), "; it is a number of seconds, 0 or more");
      m.steps.push_back(one.get<double>());
    }
  return m;
}
inline elastic_situation situation_from(const strict_json& file, const nlohmann::json& object) {
  file.require_keys(object, {"model", "layout", "version", "members", "spares", "waited", "snapshots", "checkpoint"},
                    "situation");
  elastic_situation s;
  member_list all;
  const auto add = [&](const member_name& who) {
    if (has_member(all, who)) file.refuse_text(who.text(), " is there twice; a member has one place, or is a spare");
    all.push_back(who);
  };
  s.layout = parse_degrees(word(file, object, "layout"));
  s.version = file.whole_or(object, "version", 0, 0);
  for (const nlohmann::json& one :
       few(file, file.list(object, "members", "objects with name, dead, empty and steps"), "members")) {
    s.members.push_back(member_from(file, one));
    add(s.members.back().name);
  }
  if (object.contains("spares"))
    for (const nlohmann::json& one : few(file, file.list(object, "spares", "names"), "spares")) {
      s.spares.push_back(name_of(file, one, "a spare"));
      add(s.spares.back());
    }
  s.waited = number_or(file, object, "waited", 0);
  if (object.contains("snapshots"))
    for (const nlohmann::json& one :
         few(file, file.list(object, "snapshots", "objects with of, at and version"), "snapshots")) {
      file.require_keys(one, {"of", "at", "version"}, "a snapshot");
      s.snapshots.push_back({name_of(file, file.at(one, "of"), "of"), name_of(file, file.at(one, "at"), "at"),
                             file.whole(one, "version", 0)});
    }
  if (object.contains("checkpoint") && !object["checkpoint"].is_null()) {
    file.require_keys(object["checkpoint"], {"name", "version"}, "checkpoint");
    s.checkpoint = file.whole(object["checkpoint"], "version", 0);
  }
  s.model = load_model(word(file, object, "model"));
  return s;
}

}  // namespace detail

/// Reads a policy: {"rungs": [..], "factor", "windows", "wait", "min", "axes"}; `name` is what sentences call the text.
[[nodiscard]] inline elastic_policy policy_from_json(std::string_view text, std::string_view name) {
  const detail::strict_json file(text, name);
  return detail::policy_from(file, file.root());
}

/// Reads a question; `name` is what sentences call the text.
[[nodiscard]] inline decide_question decide_from_json(std::string_view text, std::string_view name) {
  const detail::strict_json file(text, name);
  const nlohmann::json& root = file.root();
  file.require_keys(root, {"policy", "situation"}, "a question of what to decide");
  decide_question asked;
  if (root.contains("policy")) asked.policy = detail::policy_from(file, root["policy"]);
  asked.situation = detail::situation_from(file, file.at(root, "situation"));
  return asked;
}

/// {"rung":NAME,"world":[..],"layout":"..","because":[{"rung","not":sentence},..]}; null where no rung is taken, and
/// where one makes no world.
inline void write_decision_json(text_output& out, const elastic_decision& d) {
  out << "{\"rung\":" << (d.taken ? detail::quoted(std::string(name(*d.taken))) : "null") << ",\"world\":";
  if (d.layout) detail::write_names(out, d.world);
  else out << "null";
  out << ",\"layout\":" << (d.layout ? detail::quoted(to_text(*d.layout)) : "null") << ",\"because\":[";
  json_items items(out);
  for (const rung_not_taken& one : d.because)
    items.next() << "{\"rung\":\"" << name(one.which) << "\",\"not\":" << detail::quoted(one.why) << "}";
  out << "]}\n";
}

}  // namespace reshard::io
