// SPDX-License-Identifier: Apache-2.0
#include "demo_print.hpp"

#include <reshard/io/print.hpp>

#include "log.hpp"

namespace elastic {

namespace {

std::string or_null(const std::optional<double>& seconds) { return seconds ? worker_log::seconds(*seconds) : "null"; }
std::string or_none(const std::optional<double>& seconds) { return seconds ? io::seconds_text(*seconds) : "-"; }

}  // namespace

std::string demo_json(const job_verdict& v, const std::vector<change_figures>& changes) {
  std::string all = worker_log::text("{\"members\":4,\"steps\":", v.steps, ",\"samples\":", v.samples,
                                     ",\"replicas\":", v.replicas, ",\"changes\":[");
  for (const change_figures& c : changes)
    all += worker_log::text(
        &c == changes.data() ? "" : ",", "{\"what\":", worker_log::quoted(c.what),
        ",\"who\":", worker_log::quoted(c.who), ",\"epoch\":", c.epoch, ",\"pause_s\":", worker_log::seconds(c.pause),
        ",\"switch_s\":", worker_log::seconds(c.switched), ",\"detection_s\":", or_null(c.detection),
        ",\"known_s\":", or_null(c.known), ",\"recovery_s\":", or_null(c.recovery), "}");
  all += worker_log::text("],\"right\":", v.wrong.empty() ? "true" : "false", ",\"wrong\":[");
  for (const std::string& one : v.wrong) all += (&one == v.wrong.data() ? "" : ",") + worker_log::quoted(one);
  return all + "]}\n";
}

std::string demo_text(const job_verdict& v, const std::vector<change_figures>& changes) {
  io::table rows({{"change", io::table::side::left},
                  {"epoch"},
                  {"pause"},
                  {"switch"},
                  {"detection"},
                  {"known to all"},
                  {"recovery"}});
  for (const change_figures& c : changes)
    rows.row({c.what + " " + c.who, std::to_string(c.epoch), io::seconds_text(c.pause), io::seconds_text(c.switched),
              or_none(c.detection), or_none(c.known), or_none(c.recovery)});
  std::string all = "a job of 4 processes here, dp=4\n\n" + rows.text() + "\n";
  if (v.wrong.empty())
    return all + worker_log::text("right: ", v.samples, " samples in ", v.steps, " steps, each once; ", v.replicas,
                                  " replicas to the last element, and everybody ended as it had to\n");
  for (const std::string& one : v.wrong) all += "wrong: " + one + "\n";
  return all;
}

}  // namespace elastic
