// SPDX-License-Identifier: Apache-2.0
// What a switch costs as a person reads it: a summary, the busiest links, and what each device sends, receives, keeps
// and needs at its peak.
// Builds on: report/layout_text.hpp, plan/relabel.hpp, cost/switch_bytes.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <reshard/base/each_run.hpp>
#include <reshard/cost/switch_bytes.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/report/layout_text.hpp>

namespace reshard::io {

namespace detail {

/// Neighbouring devices with the same figures share a row; of many rows those of the busiest devices are shown.
inline std::string device_table(const switch_figures& f) {
  constexpr std::size_t rows_shown = 20;
  struct group {
    interval devices;
    device_figures figures;
    bytes_t traffic() const { return figures.send + figures.receive; }
  };
  const auto alike = [](const device_figures& a, const device_figures& b) {
    return a.send == b.send && a.receive == b.receive && a.retained == b.retained && a.before == b.before &&
           a.after == b.after && a.peak == b.peak;
  };
  std::vector<group> groups;
  for (const device_figures& d : f.devices) {
    if (!groups.empty() && groups.back().devices.end == d.device && alike(groups.back().figures, d))
      ++groups.back().devices.end;
    else groups.push_back({{d.device, d.device + 1}, d});
  }
  const std::size_t all = groups.size();
  if (all > rows_shown) {
    std::sort(groups.begin(), groups.end(), [](const group& a, const group& b) {
      return a.traffic() != b.traffic() ? a.traffic() > b.traffic() : a.devices.begin < b.devices.begin;
    });
    groups.resize(rows_shown);
  }
  table rows(
      {{"device", table::side::left}, {"sends"}, {"receives"}, {"keeps"}, {"before"}, {"after"}, {"peak"}, {"excess"}});
  const auto row = [&](std::string name, const device_figures& d, bytes_t excess) {
    rows.row({std::move(name), narrow_bytes_text(d.send), narrow_bytes_text(d.receive), narrow_bytes_text(d.retained),
              narrow_bytes_text(d.before), narrow_bytes_text(d.after), narrow_bytes_text(d.peak),
              narrow_bytes_text(excess)});
  };
  for (const group& g : groups) row(range_text(g.devices), g.figures, g.figures.peak - g.figures.floor());
  if (f.devices.size() > 1) {
    device_figures least_of = f.devices[0], most_of = f.devices[0];
    bytes_t least_excess = f.peak_excess;
    for (const device_figures& d : f.devices) {
      for (bytes_t device_figures::*figure :
           {&device_figures::send, &device_figures::receive, &device_figures::retained, &device_figures::before,
            &device_figures::after, &device_figures::peak}) {
        least_of.*figure = least(least_of.*figure, d.*figure);
        most_of.*figure = greatest(most_of.*figure, d.*figure);
      }
      least_excess = least(least_excess, d.peak - d.floor());
    }
    row("least", least_of, least_excess);
    row("most", most_of, f.peak_excess);
  }
  std::string text = rows.text();
  if (all > rows_shown)
    text += text_of("  The busiest devices; ", all - rows_shown, " more rows are left out. --json has them all.\n");
  return text;
}

}  // namespace detail

/// Which switch it is: the model, both sides, where they sit, and which states move, each line folded.
template <Holding From, Holding To>
std::string switch_heading(const layout_switch<From, To>& change, rank_t told_device = -1) {
  const std::string model = one_line(detail::model_name(change.from(), change.to()), 60);
  std::string text = text_of(folded(text_of(model, " from ", detail::side_text(change.from()))), "\n",
                             folded(text_of("to ", detail::side_text(change.to()))), "\n");
  const index_t node = change.node_devices();
  std::string on = node == 0 ? text_of("on ", count_text(change.devices()),
                                       change.devices() == 1 ? " device" : " devices", " of one node")
                             : text_of("on ", ceil_divide(change.devices(), node),
                                       change.devices() <= node ? " node of " : " nodes of ", node, " devices");
  const auto among = [&on](const std::vector<interval>& devices, std::string_view are) {
    index_t count = 0;
    for (const interval& run : devices) count += run.size();
    if (count > 0) on += text_of(", ", count_text(count), " of them ", are);
  };
  among(change.lost_devices(), "lost"), among(change.empty_devices(), "empty");
  if (change.states() != change.list().all()) on += text_of(", ", to_text(change.states(), change.list()), " only");
  if (told_device >= 0) on += text_of("; only what goes from or to device ", told_device);
  return text + folded(on) + "\n";
}

/// "TO relabelled: 1.5 GiB saved, 20 ms saved" and on which devices its ranks sit; or that nothing is saved. Empty
/// where it is not asked for.
template <Holding From, Holding To>
std::string relabel_text(const layout_switch<From, To>& change, const std::optional<relabel_saves>& saves) {
  if (!saves) return "";
  if (!saves->relabelled) return "relabelling saves nothing: TO sits where it was\n";
  std::string text = "TO relabelled: ";
  text += saves->bytes < 0 ? text_of(bytes_text(-saves->bytes), " more to move") : bytes_text(saves->bytes) + " saved";
  if (saves->seconds && *saves->seconds != 0)
    text += *saves->seconds < 0 ? text_of(", ", seconds_text(-*saves->seconds), " more")
                                : text_of(", ", seconds_text(*saves->seconds), " saved");
  constexpr std::size_t most_shown = 400;
  std::string devices;
  const device_map& to = change.to_devices();
  const auto in_a_row = [&](rank_t r, rank_t s) { return to.device_of(s) - to.device_of(r) == s - r; };
  reshard::detail::each_run(change.to().ranks(), in_a_row, [&](rank_t r, rank_t past) {
    devices += text_of(devices.empty() ? "" : ", ", range_text({to.device_of(r), to.device_of(past - 1) + 1}));
  });
  if (devices.size() > most_shown) devices = "as --json says in rank_of_device";
  return folded(text) + "\n" + folded(text_of("its ranks on devices ", devices)) + "\n";
}

/// "in 4 stages", with relay "in 4 stages of 3 phases".
inline std::string stages_text(const switch_figures& f) {
  std::string text = text_of("in ", count_text(f.how.stages), f.how.stages == 1 ? " stage" : " stages");
  if (f.how.how == relay::always) text += text_of(" of ", f.phases, f.phases == 1 ? " phase" : " phases");
  return text;
}

/// What `reshard plan` prints. `budget` is 0 where none was given; `told_device` -1 where the whole switch is told.
template <Holding From, Holding To>
std::string switch_text(const layout_switch<From, To>& change, const switch_figures& f, double planning_seconds,
                        bytes_t budget, rank_t told_device, const std::optional<relabel_saves>& saves = {}) {
  std::string text = switch_heading(change, told_device) + relabel_text(change, saves) + "\n";
  const auto line = [&](const char* name, const std::string& value, const std::string& note) {
    std::string label(name);
    label.resize(12, ' ');
    text += text_of("  ", label, value, note.empty() ? "" : "  ", note, "\n");
  };
  line("moves", bytes_text(f.moved),
       f.moved == f.least ? "the least possible" : text_of("least possible: ", bytes_text(f.least)));
  if (change.node_devices() != 0) line("", bytes_text(f.inter_node), "of it between nodes");
  line("keeps", bytes_text(f.retained), "already where it is needed");
  if (f.created > 0) line("creates", bytes_text(f.created), "zeros: rows of the vocabulary that only TO has");
  if (f.lost > 0) line("lost", bytes_text(f.lost), "held by lost devices alone; left out");
  if (f.how.how == relay::always) line("relays", bytes_text(f.relayed), "received only to be passed on");
  line("messages", count_text(f.messages), stages_text(f));
  line("peak", bytes_text(f.peak), f.after_use == sources::keep ? "of any device; FROM's bytes stay" : "of any device");
  line("excess", bytes_text(f.peak_excess), "at most above what a device holds before or after");
  if (budget > 0)
    line("budget", bytes_text(budget),
         f.peak_excess <= budget ? "kept" : text_of("exceeded by ", bytes_text(f.peak_excess - budget)));
  line("planned in", seconds_text(planning_seconds), "");

  text += "\n" + detail::device_table(f);
  if (!f.busiest.empty() && f.busiest[0].bytes > 0) {
    table links({{"busiest links", table::side::left}, {"bytes"}});
    for (const link_figures& l : f.busiest) links.row({text_of(l.src, " -> ", l.dst), bytes_text(l.bytes)});
    text += "\n" + links.text();
  }
  return text;
}

}  // namespace reshard::io
