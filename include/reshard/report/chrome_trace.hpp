// SPDX-License-Identifier: Apache-2.0
// A switch over time as Chrome trace events: a process for every node, a thread for every device that takes part; what
// it sends and receives in each slot, by which port, and its live bytes as a counter. chrome://tracing and Perfetto
// show it. Simulated: nothing is measured.
// Builds on: cost/simulate.hpp, cost/slot_traffic.hpp, cost/switch_bytes.hpp, io/text_output.hpp.
#pragma once

#include <string_view>
#include <vector>

#include <reshard/base/sort.hpp>
#include <reshard/cost/simulate.hpp>
#include <reshard/cost/slot_traffic.hpp>
#include <reshard/cost/switch_bytes.hpp>
#include <reshard/io/print.hpp>
#include <reshard/io/text_output.hpp>

namespace reshard::io {

/// What every device holds before a switch, in each slot, and after it, one device's plan at a time.
template <Holding From, Holding To>
class live_recorder {
 public:
  struct device {
    rank_t number = 0;
    bytes_t before = 0, after = 0;
    std::vector<bytes_t> live;
  };

  /// `change` outlives this.
  live_recorder(const layout_switch<From, To>& change, index_t stages, sources after_use)
      : live_recorder(change, {.stages = stages}, 1, after_use) {}
  /// Records a switch that is routed so, of so many phases.
  live_recorder(const layout_switch<From, To>& change, const routing& how, index_t phases, sources after_use)
      : change_(&change), how_(how), phases_(phases), after_use_(after_use) {}

  void add(const plan& p) {
    const rank_t was = change_->from_rank(p.device), is = change_->to_rank(p.device);
    if (was < 0 && is < 0) return;
    device d{p.device,
             held_bytes(change_->from(), was, change_->states()),
             held_bytes(change_->to(), is, change_->states()),
             {}};
    if (how_.how == relay::always) {
      d.live = relayed_memory(p, d.before, after_use_).live(how_.stages, slots());
    } else {
      const staged_plan cut = stage_plan(p, *change_, how_.stages);
      d.live = live_bytes(d.before, cut.receives, cut.sends, p.retains, how_.stages,
                          total_bytes(p.creates) + total_bytes(p.lost), after_use_);
    }
    if (after_use_ == sources::keep) d.after += d.before - total_bytes(p.retains);
    devices_.push_back(d);
  }
  /// Ascending, those that take part.
  const std::vector<device>& devices() const { return devices_; }
  index_t slots() const { return how_.stages + phases_ - 1; }

 private:
  const layout_switch<From, To>* change_;
  routing how_;
  index_t phases_;
  sources after_use_;
  std::vector<device> devices_;
};

namespace detail {

/// Writes events, times in microseconds.
class trace_writer {
 public:
  explicit trace_writer(text_output& out) : out_(&out), events_(out) {}

  /// The name of a process or a thread, and its place among them.
  void name(const port_table::seat& s, std::string_view what, std::string_view kind, index_t number) {
    const auto head = [&](std::string_view item) {
      events_.next() << "{\"ph\":\"M\",\"pid\":" << s.node << ",\"tid\":" << s.device << ",\"name\":\"" << kind << item
                     << "\",\"args\":{";
    };
    head("_name");
    *out_ << "\"name\":\"" << what << " " << number << "\"}}";
    head("_sort_index");
    *out_ << "\"sort_index\":" << number << "}}";
  }
  void live(const port_table::seat& s, double at, bytes_t bytes) {
    events_.next() << "{\"ph\":\"C\",\"pid\":" << s.node << ",\"tid\":" << s.device << ",\"ts\":" << at
                   << ",\"name\":\"live bytes of device " << s.device << "\",\"args\":{\"bytes\":" << bytes << "}}";
  }
  /// What passes each port of a device in a slot, from its beginning on, as long as the port takes for it; the longest
  /// first, so that the others lie inside it.
  void slot(const port_table::seat& s, const device_traffic& traffic, double at, index_t k) {
    struct bar {
      port_kind kind;
      std::string_view name;
      double micros;
    };
    std::vector<bar> bars;
    const auto add = [&](port_kind kind, std::string_view name, double gigabytes) {
      if (const bytes_t bytes = traffic.by(kind).bytes; bytes > 0)
        bars.push_back({kind, name, static_cast<double>(bytes) / gigabytes * 1e-3});
    };
    add(port_kind::nic_out, "sends by NIC", s.kind.nic_GBps);
    add(port_kind::nic_in, "receives by NIC", s.kind.nic_GBps);
    add(port_kind::nvlink_out, "sends by NVLink", s.kind.nvlink_GBps);
    add(port_kind::nvlink_in, "receives by NVLink", s.kind.nvlink_GBps);
    reshard::detail::sort_items(bars, [](const bar& a, const bar& b) { return a.micros > b.micros; });
    for (const bar& one : bars) {
      const port_traffic& what = traffic.by(one.kind);
      events_.next() << "{\"ph\":\"X\",\"pid\":" << s.node << ",\"tid\":" << s.device << ",\"ts\":" << at
                     << ",\"dur\":" << one.micros << ",\"name\":\"" << one.name << "\",\"args\":{\"port\":\""
                     << port_names[static_cast<std::size_t>(one.kind)] << "\",\"slot\":" << k
                     << ",\"bytes\":" << what.bytes << ",\"messages\":" << what.messages
                     << ",\"across_rails\":" << what.across_rails << "}}";
    }
  }

 private:
  text_output* out_;
  json_items events_;
};

}  // namespace detail

/// {"displayTimeUnit":"ms","otherData":{..},"traceEvents":[..]}: a slot begins with what it costs, stage_us; then its
/// transfers begin, and what arrives is live. Live bytes are told before the first slot, in each, and after the last.
/// traffic(t) is the traffic of slot t.
template <Holding From, Holding To, typename Traffic>
void write_trace(text_output& out, const port_table& on, const live_recorder<From, To>& memory, Traffic&& traffic) {
  out << "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"simulated\":\"not measured\"},\"traceEvents\":[";
  detail::trace_writer events(out);
  for (const port_table::seat& s : on.seats()) {
    if (on.seats()[s.node_seat].device == s.device) events.name(s, "node", "process", s.node);
    events.name(s, "device", "thread", s.device);
  }
  double begin = 0;
  const double cost = on.slot_seconds() * 1e6;
  for (const auto& d : memory.devices()) events.live(on.of(d.number), begin, d.before);
  for (index_t k = 0; k < memory.slots(); ++k) {
    const slot_traffic slot = traffic(k);
    for (std::size_t i = 0; i < on.seats().size(); ++i) events.slot(on.seats()[i], slot.devices[i], begin + cost, k);
    for (const auto& d : memory.devices())
      events.live(on.of(d.number), begin + cost, d.live[static_cast<std::size_t>(k)]);
    begin += slot.seconds * 1e6;
  }
  for (const auto& d : memory.devices()) events.live(on.of(d.number), begin, d.after);
  out << "]}\n";
}

/// Writes the trace of a direct switch, whose slots are its stages.
template <Holding From, Holding To>
void write_trace(text_output& out, const simulator<From, To>& all, const live_recorder<From, To>& memory) {
  write_trace(out, all.on(), memory,
              [&](index_t k) { return traffic_of_slot(all.on(), all.streams(), k, memory.slots()); });
}

}  // namespace reshard::io
