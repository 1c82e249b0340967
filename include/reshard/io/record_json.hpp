// SPDX-License-Identifier: Apache-2.0
// The record of a job as JSON, one line, for who looks at it from outside:
//   {"phase","epoch","attempt","boundary","wanted","from_copies","worlds":[W,..],"proposed":W or null,
//    "promises":[{"member","version","stage","scalar","of_epoch","torn_stages","torn_in_place",
//      "torn_here","torn_unread","copies":[{"of","version"},..]},..],
//    "gone":[NAME,..],"request":ID or null}
// a world W being {"epoch","members":[NAME,..],"layout","first_step","cursor","batch"}.
// Builds on: elastic/record.hpp, io/text_output.hpp.
#pragma once

#include <reshard/elastic/record.hpp>
#include <reshard/io/text_output.hpp>

namespace reshard::io {

namespace detail {
/// Names have no quotes and backslashes, and layouts neither: they stand in JSON as they are.
inline void write_names(text_output& out, const member_list& list) {
  out << "[";
  json_items items(out);
  for (const member_name& one : list) items.next() << "\"" << one.text() << "\"";
  out << "]";
}
inline void write_world(text_output& out, const world& w) {
  out << "{\"epoch\":" << w.epoch << ",\"members\":";
  write_names(out, w.members);
  out << ",\"layout\":\"" << to_text(w.layout) << "\",\"first_step\":" << w.first_step << ",\"cursor\":" << w.cursor
      << ",\"batch\":" << w.batch << "}";
}
inline void write_promise(text_output& out, const promise& p) {
  out << "{\"member\":\"" << p.told.member.text() << "\",\"version\":";
  if (p.holds_state()) out << p.told.version;
  else out << "null";
  out << ",\"stage\":" << static_cast<int>(p.told.stage) << ",\"scalar\":" << p.scalar << ",\"of_epoch\":" << p.of_epoch
      << ",\"torn_stages\":" << p.torn_stages << ",\"torn_in_place\":" << p.torn_in_place
      << ",\"torn_here\":" << p.torn_here << ",\"torn_unread\":" << p.torn_unread << ",\"copies\":[";
  json_items copies(out);
  for (const kept_copy& c : p.copies)
    copies.next() << "{\"of\":\"" << c.of.text() << "\",\"version\":" << c.version << "}";
  out << "]}";
}
}  // namespace detail

/// The record as an object, in one line. `version` is null of a promise that holds nothing; `scalar` is its 64 bits as
/// a whole number.
inline void write_record_json(text_output& out, const job_record& r) {
  out << "{\"phase\":\"" << name(r.phase) << "\",\"epoch\":" << r.epoch << ",\"attempt\":" << r.attempt
      << ",\"boundary\":" << r.boundary << ",\"wanted\":" << r.wanted
      << ",\"from_copies\":" << (r.from_copies ? "true" : "false") << ",\"worlds\":[";
  json_items worlds(out);
  for (const world& w : r.worlds) detail::write_world(worlds.next(), w);
  out << "],\"proposed\":";
  if (r.proposed.empty()) out << "null";
  else detail::write_world(out, r.proposed[0]);
  out << ",\"promises\":[";
  json_items promises(out);
  for (const promise& p : r.promises) detail::write_promise(promises.next(), p);
  out << "],\"gone\":";
  detail::write_names(out, r.gone);
  out << ",\"request\":";
  if (r.request.empty()) out << "null";
  else out << "\"" << r.request.text() << "\"";
  out << "}\n";
}

}  // namespace reshard::io
