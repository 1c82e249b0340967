// SPDX-License-Identifier: Apache-2.0
// See demo_fault.hpp.
#include "demo_fault.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <reshard/io/arguments.hpp>
#include <reshard/io/hf_config.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/report/switch_json.hpp>
#include <reshard/switch/attempt_switch.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/switch/torn_switch.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/sockets.hpp>

namespace demo {

using namespace reshard;

using namespace reshard::io;

namespace {

constexpr const char* outcome_names[] = {"finished", "refused", "failed", "torn", "unknown"};
enum outcome : std::size_t { finished, refused, failed, is_torn, unknown };
constexpr rank_t most_devices = 64;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// What a process leaves in memory that all share; plain data.
struct left_by_device {
  double struck = 0;  // the fault, by the clock that all share
  bool reported = false, went_on = false;
  std::size_t how = finished;
  index_t stages = 0, in_place = 0;
  bool budget = false;
  index_t unread_kept[most_devices] = {};  // of each device, with a budget
  std::uint64_t survivors = 0;             // bits
  index_t wrong = 0;
  char sentence[1000] = {};
  // of the switch that went on
  switch_report report;
  index_t elements = 0, wrong_after = 0, messages = 0;
  bytes_t wire_bytes = 0, staging = 0;
  double begin = 0, end = 0;
};

device_map devices_of(const char* what, const std::string& list, rank_t ranks) {
  return list.empty() ? device_map(ranks) : device_map(parse_device_list(what, list, ranks));
}
std::vector<rank_t> devices_in(std::uint64_t bits) {
  std::vector<rank_t> list;
  for (rank_t d = 0; d < most_devices; ++d)
    if ((bits >> d & 1) != 0) list.push_back(d);
  return list;
}
std::uint64_t bits_of(const std::vector<rank_t>& list) {
  std::uint64_t bits = 0;
  for (const rank_t d : list) bits |= std::uint64_t{1} << d;
  return bits;
}

/// An end of a world to which the fault happens, and that counts messages.
struct struck : forwarding<socket_endpoint> {
  const fault_request* fault = nullptr;  // of this device, if any
  left_by_device& left;

  moves prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
    moves made = inner.prepare(plan, into, pages);
    left.messages = static_cast<index_t>(made.out.size());
    left.wire_bytes = made.sent_bytes();
    left.staging = inner.footprint(plan).most;
    return made;
  }
  void move(moves& m, index_t slot) {
    if (fault != nullptr && slot == fault->stage && slot < m.slots) {
      left.struck = now();
      ::raise(fault->what == fault_request::kind::kill ? SIGKILL : SIGSTOP);
    }
    inner.move(m, slot);
  }
};

/// The switch, and where the processes of it and of the one after it are called.
class faulted_switch {
 public:
  faulted_switch(const switch_request& r, const fault_request& fault)
      : r_(r), fault_(fault), model_(load_model(r.model)), change_(change_of(r)) {
    const rank_t devices = change_.devices();
    if (devices > most_devices) refuse("--fault: ", devices, " devices; at most ", most_devices, " are started");
    if (fault.device >= devices)
      refuse("--fault: there is no device ", fault.device, "; devices are 0 to ", devices - 1);
    for (const computed_holding* side : {&change_.from(), &change_.to()})
      if (side->space().degrees().names != names_as::megatron) refuse("--fault: names=hf is not built here");
    if (!fault.then.empty()) {
      const space then(model_, parse_degrees(fault.then));
      if (then.ranks() >= devices)
        refuse("--then ", one_line(fault.then), " has ", then.ranks(), " ranks, and of ", devices,
               " devices one does not survive");
    }
    const std::size_t bytes = sizeof(left_by_device) * static_cast<std::size_t>(devices);
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("reshard: no memory for the processes to share");
    left_ = static_cast<left_by_device*>(at);
    for (rank_t d = 0; d < devices; ++d) new (left_ + d) left_by_device;
    for (auto [listening, addresses] : {std::pair(&first_, &first_addresses_), std::pair(&then_, &then_addresses_)})
      for (rank_t d = 0; d < devices; ++d) {
        listening->emplace_back(listening_socket("127.0.0.1:0"));
        addresses->push_back("127.0.0.1:" + std::to_string(listening->back()->port()));
      }
    for (rank_t d = 0; d < devices; ++d) told_.push_back(std::tmpfile());
  }
  faulted_switch(const faulted_switch&) = delete;

  bool run() {
    start();
    for (std::optional<listening_socket>& l : first_) l.reset();
    for (std::optional<listening_socket>& l : then_) l.reset();
    wait_for_survivors();
    end_victim();
    const left_by_device& victim = left_[fault_.device];
    if (victim.struck == 0 && !victim.reported) throw std::runtime_error("reshard: the switch did not begin");
    if (victim.struck == 0 && victim.how == refused) throw std::runtime_error(victim.sentence);
    if (victim.struck == 0)
      refuse("--fault: the switch took ", left_[fault_.device].stages, " stages, and none was the ", fault_.stage,
             "th, counted from 0");
    return print();
  }

 private:
  computed_switch change_of(const switch_request& r) const {
    const space from(model_, parse_degrees(r.from)), to(model_, parse_degrees(r.to));
    return layout_switch(from, to,
                         {devices_of("--from-devices", r.from_devices, from.ranks()),
                          devices_of("--to-devices", r.to_devices, to.ranks())});
  }

  void start() {
    std::fflush(stdout);
    for (rank_t d = 0; d < change_.devices(); ++d) {
      const pid_t child = ::fork();
      if (child < 0) throw std::runtime_error("reshard: a process could not be started");
      children_.push_back(child);
      if (child > 0) continue;
      int code = 0;
      try {
        process(d);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "device %lld: %s\n", static_cast<long long>(d), e.what());
        code = 1;
      }
      std::fflush(nullptr);
      ::_exit(code);
    }
  }

  /// What process d does.
  void process(rank_t d) {
    const auto at = static_cast<std::size_t>(d);
    listening_socket mine = std::move(*first_[at]), later = std::move(*then_[at]);
    first_.clear(), then_.clear();
    left_by_device& left = left_[d];
    const rank_t f = change_.from_rank(d), t = change_.to_rank(d);
    rank_storage before("no rank"), after("no rank");
    if (f >= 0) before = rank_storage(change_.from(), f, text_of("rank ", f, " of FROM"));
    if (t >= 0) after = rank_storage(change_.to(), t, text_of("rank ", t, " of TO"));
    fill(before.tensors(), change_.from());
    std::optional<switch_ending> ended;
    double reported = 0;
    {
      socket_endpoint here(d, first_addresses_, std::move(mine),
                           patience(static_cast<std::int64_t>(fault_.patience_seconds * 1000)));
      struck through{{here}, d == fault_.device ? &fault_ : nullptr, left};
      ended = attempt_switch(change_, before.tensors(), after.tensors(), through,
                             {.budget = r_.budget, .after_use = fault_.keep ? sources::keep : sources::release});
      reported = now();
    }
    left.how = ended->index();
    std::vector<rank_t> survivors;
    std::visit(
        [&](const auto& end) {
          if constexpr (requires { end.survivors; }) survivors = end.survivors;
          if constexpr (requires { end.stages; }) left.stages = end.stages;
          if constexpr (requires { end.in_place; }) left.in_place = end.in_place;
          if constexpr (requires { end.unread_kept; })
            if (end.unread_kept) {
              left.budget = true;
              std::copy(end.unread_kept->begin(), end.unread_kept->end(), left.unread_kept);
            }
          if constexpr (requires { end.report; }) left.stages = left.in_place = end.report.stages;
        },
        *ended);
    if (left.how == unknown) left.in_place = left.stages;
    left.survivors = bits_of(survivors);
    std::string sentence = sentence_of(*ended);
    if (left.how == is_torn) sentence += "; " + lost_after(change_, boxes_of(d), survivors).text();
    std::snprintf(left.sentence, sizeof left.sentence, "%s", sentence.c_str());
    tell(d, reported, sentence, before.tensors(), after.tensors());
    left.reported = true;
    if (!fault_.then.empty() && !survivors.empty() && d != fault_.device)
      go_on(d, survivors, std::move(later), before.tensors(), after.tensors());
  }

  /// Calls sink(state, family, box) with what a device holds, of the side whose names it has.
  template <typename Sink>
  const computed_holding& each_held_by(rank_t d, const std::vector<torn_box>& boxes, Sink&& sink) const {
    const left_by_device& left = left_[d];
    if (left.how == is_torn) {
      for (const torn_box& b : boxes)
        if (std::count(b.in_old.begin(), b.in_old.end(), d) + std::count(b.in_new.begin(), b.in_new.end(), d) > 0)
          for (const int s : b.states) sink(s, b.tensor.family, family_box_of(b.tensor, b.where));
      return change_.to();
    }
    const bool is_new = left.how == finished || left.how == unknown;
    const computed_holding& side = is_new ? change_.to() : change_.from();
    if (const rank_t rank = is_new ? change_.to_rank(d) : change_.from_rank(d); rank >= 0)
      for (const int s : change_.states())
        each_held(side, rank, change_.states().role_of(s), [&](int f, const family_box& b) { sink(s, f, b); });
    return side;
  }

  /// The boxes of a torn switch; none of another.
  std::vector<torn_box> boxes_of(rank_t d) const {
    if (left_[d].how != is_torn) return {};
    const left_by_device& left = left_[d];
    ended::torn end{"", left.stages, left.in_place, devices_in(left.survivors)};
    if (left.budget) end.unread_kept.emplace(left.unread_kept, left.unread_kept + change_.devices());
    return torn_boxes(change_, end);
  }

  /// Writes a device's object, and counts what is wrong of what it says.
  void tell(rank_t d, double reported, const std::string& sentence, const binding& old_tensors,
            const binding& new_tensors) const {
    left_by_device& left = left_[d];
    const std::vector<torn_box> boxes = boxes_of(d);
    text_output out(told_[static_cast<std::size_t>(d)]);
    out << "{\"device\":" << d << ",\"outcome\":\"" << outcome_names[left.how] << "\",\"gone\":[";
    json_items gone(out);
    for (rank_t other = 0; other < change_.devices(); ++other)
      if (left.survivors != 0 && (left.survivors >> other & 1) == 0) gone.next() << other;
    out << "],\"stages\":" << left.stages << ",\"in_place_stages\":" << left.in_place
        << ",\"seconds_to_report\":" << (left_[fault_.device].struck > 0 ? reported - left_[fault_.device].struck : 0.0)
        << ",\"holds\":[";
    json_items holds(out);
    each_held_by(d, boxes, [&](int s, int f, const family_box& b) {
      const bool of_new = left.how == finished || left.how == unknown || left.how == is_torn;
      const rank_t rank = of_new ? change_.to_rank(d) : change_.from_rank(d);
      write_tensors(holds, (of_new ? change_.to() : change_.from()).space(), f, greatest(0, rank), b,
                    text_of("\"state\":\"", change_.list()[s].name, "\""));
    });
    if (left.how == is_torn)
      left.wrong = compare(binding_after(boxes, d, old_tensors, new_tensors), change_.to()).wrong;
    else if (left.how == finished || left.how == unknown) left.wrong = compare(new_tensors, change_.to()).wrong;
    else left.wrong = compare(old_tensors, change_.from()).wrong;
    std::string quoted;
    for (const char c : sentence) quoted += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    out << "],\"wrong\":" << left.wrong << ",\"sentence\":\"" << one_line(quoted, 2000) << "\"}\n";
    out.flush();
  }

  /// Where the survivors go on to.
  device_map lowest(const std::vector<rank_t>& survivors, rank_t ranks) const {
    if (static_cast<rank_t>(survivors.size()) < ranks)
      refuse("--then ", one_line(fault_.then), " has ", ranks, " ranks, and ", survivors.size(), " devices survive");
    return device_map(std::vector<rank_t>(survivors.begin(), survivors.begin() + ranks));
  }
  std::vector<rank_t> gone(const std::vector<rank_t>& survivors) const {
    std::vector<rank_t> list;
    for (rank_t d = 0; d < change_.devices(); ++d)
      if (std::find(survivors.begin(), survivors.end(), d) == survivors.end()) list.push_back(d);
    return list;
  }
  /// Calls with_switch(next) of the switch from what is held after an ending to a space.
  template <typename WithSwitch>
  void with_next(rank_t d, const space& then, const device_map& to, WithSwitch&& with_switch) const {
    const std::vector<rank_t> survivors = devices_in(left_[d].survivors);
    if (left_[d].how == is_torn) {
      const torn_layout layout = layout_after(change_, boxes_of(d), survivors);
      return with_switch(layout_switch(layout.shards, then, layout.placed(to)));
    }
    const bool is_new = left_[d].how == unknown || left_[d].how == finished;
    placement placed{.from = is_new ? change_.to_devices() : change_.from_devices(),
                     .to = to,
                     .devices = change_.devices(),
                     .lost = gone(survivors),
                     .lost_elements = when_lost::leave_out};
    with_switch(layout_switch(is_new ? change_.to() : change_.from(), then, placed));
  }

  void go_on(rank_t d, const std::vector<rank_t>& survivors, listening_socket listening, binding& old_tensors,
             binding& new_tensors) {
    left_by_device& left = left_[d];
    const space then(model_, parse_degrees(fault_.then));
    std::vector<std::string> addresses = then_addresses_;
    for (const rank_t dead : gone(survivors)) addresses[static_cast<std::size_t>(dead)].clear();
    binding held;
    if (left.how == is_torn) held = binding_after(boxes_of(d), d, old_tensors, new_tensors);
    binding& source = left.how == is_torn                           ? held
                      : left.how == unknown || left.how == finished ? new_tensors
                                                                    : old_tensors;
    with_next(d, then, lowest(survivors, then.ranks()), [&](const auto& next) {
      socket_endpoint again(d, addresses, std::move(listening), std::chrono::seconds(30));
      struck counting{{again}, nullptr, left};
      rank_storage fresh("no rank");
      if (next.to_rank(d) >= 0) fresh = rank_storage(next.to(), next.to_rank(d), "fresh");
      left.begin = now();
      left.report = switch_state(next, source, fresh.tensors(), counting, {.after_use = sources::keep});
      left.end = now();
      binding brought("what was brought");
      const plan mine = make_plan(next, d);
      for (const std::vector<transfer>* list : {&mine.receives, &mine.retains})
        for (const transfer& t : *list)
          each_tensor(t.family, t.where, [&](const tensor_id& tensor, const box<3>& part) {
            for (const int s : t.states)
              fresh.tensors().meet({s, tensor, part}, [&](const bound_box& b) { brought.add(b); });
          });
      brought.seal();
      const comparison found = compare(brought, next.to());
      left.elements = found.elements, left.wrong_after = found.wrong;
      left.went_on = true;
    });
  }

  void wait_for_survivors() {
    for (rank_t d = 0; d < change_.devices(); ++d) {
      const bool victim = d == fault_.device && fault_.what == fault_request::kind::stop;
      pid_t& child = children_[static_cast<std::size_t>(d)];
      int status = 0;
      if (victim && ::waitpid(child, &status, WNOHANG) != child) continue;
      if (!victim) ::waitpid(child, &status, 0);
      child = -1;
    }
  }
  /// A stopped process is continued, and ended.
  void end_victim() {
    for (pid_t& child : children_)
      if (child > 0) ::kill(child, SIGCONT), ::kill(child, SIGKILL), ::waitpid(child, nullptr, 0), child = -1;
  }

  bool print() const {
    rank_t teller = -1;
    bool right = true;
    for (rank_t d = 0; d < change_.devices(); ++d) {
      if (d == fault_.device) continue;
      std::FILE* told = told_[static_cast<std::size_t>(d)];
      std::rewind(told);
      char some[4096];
      for (std::size_t n = 0; (n = std::fread(some, 1, sizeof some, told)) > 0;) std::fwrite(some, 1, n, stdout);
      right = right && left_[d].reported && left_[d].wrong == 0;
      if (teller < 0 && left_[d].reported) teller = d;
    }
    if (teller < 0) return false;
    if (left_[teller].survivors != 0) print_lost(teller);
    else std::printf("{\"lost\":[]}\n");
    if (!fault_.then.empty()) right = print_then() && right;
    return right;
  }
  /// What TO wants, or the layout after it, and no survivor holds.
  void print_lost(rank_t teller) const {
    text_output out(stdout);
    out << "{\"lost\":[";
    json_items items(out);
    const space to = fault_.then.empty() ? change_.to().space() : space(model_, parse_degrees(fault_.then));
    const auto write = [&](state_set states, int f, const family_box& b) {
      for (const int s : states)
        write_tensors(items, to, f, 0, b, text_of("\"state\":\"", change_.list()[s].name, "\""));
    };
    if (left_[teller].how == is_torn) {
      for (const torn_box& b : boxes_of(teller))
        if (b.lost()) write(b.states, b.tensor.family, family_box_of(b.tensor, b.where));
    } else {
      std::vector<rank_t> anywhere;  // its ranks sit on none of the lost
      for (rank_t rank = 0; rank < to.ranks(); ++rank) anywhere.push_back(change_.devices() + rank);
      with_next(teller, to, device_map(anywhere), [&](const auto& next) {
        each_lost(next, [&](const lost_box& b) { write(b.states, b.family, b.where); });
      });
    }
    out << "]}\n";
    out.flush();
  }
  bool print_then() const {
    left_by_device all;
    rank_t teller = -1;
    double begin = 0, end = 0;
    bytes_t moved = 0, excess = 0;
    for (rank_t d = 0; d < change_.devices(); ++d) {
      const left_by_device& left = left_[d];
      if (!left.went_on) continue;
      begin = teller < 0 ? left.begin : std::min(begin, left.begin), end = std::max(end, left.end);
      teller = teller < 0 ? d : teller;
      all.elements += left.elements, all.wrong_after += left.wrong_after;
      all.messages += left.messages, all.wire_bytes += left.wire_bytes,
          all.staging = std::max(all.staging, left.staging);
      all.report.retained += left.report.retained, moved += left.report.received;
      excess = std::max(excess, left.report.memory.excess());
    }
    if (teller < 0) return false;
    bytes_t least = 0;
    const space then(model_, parse_degrees(fault_.then));
    with_next(teller, then, lowest(devices_in(left_[teller].survivors), then.ranks()),
              [&](const auto& next) { least = moved_bytes(next); });
    std::printf(
        "{\"switch\":\"then\",\"from\":\"%s\",\"to\":\"%s\",\"ranks\":%lld,\"transport\":\"sockets\",\"elements\":%lld,"
        "\"wrong\":%lld,\"moved_bytes\":%lld,\"least_bytes\":%lld,\"retained_bytes\":%lld,\"stages\":%lld,"
        "\"unread_kept_stages\":%s,"
        "\"budget_bytes\":%lld,\"peak_excess_bytes\":%lld,\"seconds\":%.6f,\"messages\":%lld,\"wire_bytes\":%lld,"
        "\"staging_bytes\":%lld,\"lag\":%lld}\n",
        outcome_names[left_[teller].how], fault_.then.c_str(), static_cast<long long>(then.ranks()),
        static_cast<long long>(all.elements), static_cast<long long>(all.wrong_after), static_cast<long long>(moved),
        static_cast<long long>(least), static_cast<long long>(all.report.retained),
        static_cast<long long>(left_[teller].report.stages),
        left_[teller].report.unread_kept ? std::to_string(*left_[teller].report.unread_kept).c_str() : "null",
        static_cast<long long>(no_budget), static_cast<long long>(excess), end - begin,
        static_cast<long long>(all.messages), static_cast<long long>(all.wire_bytes),
        static_cast<long long>(all.staging), static_cast<long long>(left_[teller].report.lag));
    return all.wrong_after == 0 && moved == least;
  }

  const switch_request& r_;
  const fault_request& fault_;
  model model_;
  computed_switch change_;
  left_by_device* left_ = nullptr;
  std::vector<std::optional<listening_socket>> first_, then_;
  std::vector<std::string> first_addresses_, then_addresses_;
  std::vector<std::FILE*> told_;
  std::vector<pid_t> children_;
};

}  // namespace

void parse_fault(const std::string& text, fault_request& fault) {
  const std::size_t colon = text.find(':'), at = text.find('@');
  const std::string what = text.substr(0, colon);
  if (colon == text.npos || at == text.npos || at < colon || (what != "kill" && what != "stop"))
    refuse("--fault ", one_line(text), ": it is written kill:DEVICE@STAGE or stop:DEVICE@STAGE");
  fault.what = what == "kill" ? fault_request::kind::kill : fault_request::kind::stop;
  fault.device = io::detail::digits_of("--fault", text.substr(colon + 1, at - colon - 1));
  fault.stage = io::detail::digits_of("--fault", text.substr(at + 1));
}

double parse_patience(const std::string& text) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(seconds >= 0.1 && seconds <= 3600))
    refuse("--patience ", one_line(text), ": seconds, 0.1 to 3600");
  return seconds;
}

bool run_with_fault(const switch_request& r, const fault_request& fault) { return faulted_switch(r, fault).run(); }

}  // namespace demo
