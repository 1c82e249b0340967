// SPDX-License-Identifier: Apache-2.0
// Lists of states: which states a job keeps, by name, element type and the ZeRO level from which they are sharded. A
// value, made of states or read from text such as "param:bf16:3,master:fp32:1"; both sides of a switch have one list.
// Sets of states are bits of a list, and the state of a statistic is there with any.
// Builds on: base/refusal.hpp, model/state.hpp.
#pragma once

#include <initializer_list>
#include <string_view>

#include <reshard/base/refusal.hpp>
#include <reshard/model/state.hpp>

namespace reshard {

/// Characters of a state's name, at most.
inline constexpr int max_state_name = 31;

/// Up to 16 states, their names distinct, one of them called param and of level 3. Numbered in order.
class state_list {
 public:
  /// Refuses what is no list.
  constexpr state_list(std::initializer_list<state> states) {
    for (const state& s : states) add(s);
    require_parameters();
  }

  /// "param:bf16:3,master:fp32:1": name, dtype and level of each, by commas. Anything else is refused.
  static constexpr state_list parse(std::string_view text) {
    state_list list;
    for (std::string_view rest = text;;) {
      const std::size_t comma = rest.find(',');
      list.add(parsed(rest.substr(0, comma)));
      if (comma == rest.npos) break;
      rest.remove_prefix(comma + 1);
    }
    list.require_parameters();
    return list;
  }

  constexpr int size() const { return size_; }
  /// State i, 0 <= i < size(), or that of a statistic. The name is this list's.
  constexpr state operator[](int i) const {
    if (i == statistic_state) return {"param", dtype::fp32, sharding_level(role::statistic)};
    return {{name_[i], static_cast<std::size_t>(length_[i])}, type_[i], level_[i]};
  }
  /// The number of the state of a name, or -1; a parameter's where a statistic's is called alike.
  constexpr int find(std::string_view name) const {
    for (int i = 0; i < size_; ++i)
      if ((*this)[i].name == name) return i;
    return -1;
  }

  /// { state_index }: one state alone. Refuses a number that is no state's.
  constexpr state_set only(int state_index) const {
    if ((state_index < 0 || state_index >= size_) && state_index != statistic_state)
      refuse("states: there is no state ", state_index, "; they are 0 to ", size_ - 1, ", and ", statistic_state,
             " of statistics");
    return all_.masked(1u << state_index);
  }
  /// { s : s.name == name }: a parameter's and a statistic's, of one name.
  constexpr state_set named(std::string_view name) const {
    const int i = find(name);
    if (i < 0) return {};
    return name == "param" ? only(i) | statistic_states : only(i);
  }
  /// Every state, that of statistics included.
  constexpr const state_set& all() const { return all_; }
  constexpr operator state_set() const { return all_; }

  /// This list, and a state after its last.
  constexpr state_list plus(const state& last) const {
    state_list result = *this;
    result.add(last);
    return result;
  }

  friend constexpr bool operator==(const state_list&, const state_list&) = default;

 private:
  constexpr state_list() = default;

  static constexpr bool may_be_in_name(char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '_' || c == '.' ||
           c == '-' || c == '/';
  }

  /// "exp_avg:fp32:1"
  static constexpr state parsed(std::string_view text) {
    const std::size_t first = text.find(':'), second = first == text.npos ? first : text.find(':', first + 1);
    if (second == text.npos)
      refuse("states: '", text.substr(0, 40), "' is not of the form name:dtype:level, like exp_avg:fp32:1");
    state s{text.substr(0, first), dtype::bf16, 0};
    const std::string_view type = text.substr(first + 1, second - first - 1), level = text.substr(second + 1);
    bool known = false;
    for (const dtype t : {dtype::bf16, dtype::fp16, dtype::fp32, dtype::fp8})
      if (reshard::name(t) == type) s.type = t, known = true;
    if (!known)
      refuse("states: '", s.name.substr(0, 40), "' is of dtype '", type.substr(0, 40),
             "'; dtypes are bf16, fp16, fp32 and fp8");
    if (level.size() != 1 || level[0] < '1' || level[0] > '3')
      refuse("states: '", s.name.substr(0, 40), "' is of level '", level.substr(0, 40),
             "'; levels are 1, 2 and 3, the least zero at which a state is sharded");
    s.level = level[0] - '0';
    return s;
  }

  constexpr void add(const state& s) {
    if (size_ == max_states) refuse("states: more than ", max_states, " are listed");
    if (s.name.empty() || s.name.size() > max_state_name)
      refuse("states: the name '", s.name.substr(0, 40), "' has ", s.name.size(), " characters; 1 to ", max_state_name,
             " are supported");
    for (const char c : s.name)
      if (!may_be_in_name(c))
        refuse("states: the name '", s.name, "' has characters that are none of letters, digits, '_', '.', '-', '/'");
    if (s.level < 1 || s.level > 3)
      refuse("states: '", s.name, "' is of level ", s.level,
             "; levels are 1, 2 and 3, the least zero at which a state is sharded");
    if (find(s.name) >= 0) refuse("states: '", s.name, "' is listed twice");
    for (std::size_t c = 0; c < s.name.size(); ++c) name_[size_][c] = s.name[c];
    length_[size_] = static_cast<unsigned char>(s.name.size());
    type_[size_] = s.type;
    level_[size_] = s.level;
    all_ = all_ | state_set(size_++, s.level, width(s.type));
  }
  constexpr void require_parameters() const {
    const int i = find("param");
    if (i < 0) refuse("states: none of ", size_, " is called param; one is, and is of level 3");
    if (level_[i] != 3) refuse("states: param is of level ", level_[i], "; it is of level 3");
  }

  char name_[max_states][max_state_name + 1] = {};
  unsigned char length_[max_states] = {};
  dtype type_[max_states] = {};
  index_t level_[max_states] = {};
  int size_ = 0;
  state_set all_ = statistic_states;
};

namespace detail {
/// "param, master, exp_avg and exp_avg_sq": those of a list whose numbers are in a set.
inline std::string state_names(const state_list& states, std::string_view before_last, const state_set& of) {
  std::string text;
  int left = 0;
  for (int i = 0; i < states.size(); ++i) left += of.contains(i) ? 1 : 0;
  for (int i = 0; i < states.size(); ++i)
    if (of.contains(i)) text += text_of(text.empty() ? "" : left > 1 ? ", " : before_last, states[i].name), --left;
  return text;
}
inline std::string state_names(const state_list& states, std::string_view before_last) {
  return state_names(states, before_last, states);
}
}  // namespace detail

/// Mixed-precision Adam, 14 bytes a parameter: bf16 weights, fp32 master weights and both moments. The default list.
inline constexpr state_list adam{
    {"param", dtype::bf16, 3}, {"master", dtype::fp32, 1}, {"exp_avg", dtype::fp32, 1}, {"exp_avg_sq", dtype::fp32, 1}};
/// Lion, 10 bytes a parameter: one moment.
inline constexpr state_list lion{{"param", dtype::bf16, 3}, {"master", dtype::fp32, 1}, {"exp_avg", dtype::fp32, 1}};
/// SGD with momentum, 10 bytes a parameter.
inline constexpr state_list momentum{
    {"param", dtype::bf16, 3}, {"master", dtype::fp32, 1}, {"momentum_buffer", dtype::fp32, 1}};
/// SGD in mixed precision, 6 bytes a parameter.
inline constexpr state_list sgd{{"param", dtype::bf16, 3}, {"master", dtype::fp32, 1}};

/// A list and gradients after its last state: 4 bytes a parameter more.
constexpr state_list with_gradients(const state_list& list) { return list.plus({"grad", dtype::fp32, 2}); }

/// "adam", "lion", "momentum", "sgd", each also with "+grad"; or the states of a list of one's own, one by one.
constexpr state_list parse_state_list(std::string_view text) {
  constexpr std::string_view gradients = "+grad";
  const bool more = text.ends_with(gradients);
  const std::string_view name = text.substr(0, text.size() - (more ? gradients.size() : 0));
  const state_list* ready = name == "adam"       ? &adam
                            : name == "lion"     ? &lion
                            : name == "momentum" ? &momentum
                            : name == "sgd"      ? &sgd
                                                 : nullptr;
  if (ready != nullptr) return more ? with_gradients(*ready) : *ready;
  if (text.find(':') == text.npos)
    refuse("states: '", text.substr(0, 40),
           "' is no list; it is adam, lion, momentum or sgd, each also with +grad, or name:dtype:level by commas");
  return state_list::parse(text);
}

/// { state_index } of adam.
constexpr state_set only(int state_index) { return adam.only(state_index); }
/// Every state of adam: 14 bytes an element of a parameter. Where all of another list are meant, none are named.
inline constexpr state_set all_states = adam.all();
/// { s in states : s is placed as r }
constexpr state_set states_of(role r, const state_set& states = all_states) { return states.of(r); }
/// adam's master, exp_avg and exp_avg_sq: 12 bytes an element.
inline constexpr state_set optimizer_states = all_states.of(role::optimizer);
/// adam's param, and that of statistics: 2 bytes an element of a parameter, 4 of a statistic.
inline constexpr state_set parameter_states = all_states.of(role::parameter) | statistic_states;

}  // namespace reshard
