// SPDX-License-Identifier: Apache-2.0
// Whether a job's members are gone, all of them, as one finds out that is in none of its worlds, or was taken for gone:
// nobody else is left to say so.
// Builds on: elastic/run/job_core.hpp, transport/socket.hpp.
#pragma once

#include <algorithm>
#include <optional>

#include <reshard/elastic/run/job_core.hpp>
#include <reshard/transport/socket.hpp>

namespace reshard::detail {

class deserted_job {
 public:
  explicit deserted_job(job_core& core) : core_(core) {}

  /// Brings about that all are gone, and then that nobody holds the state; whether it did. Sure of it is who has seen
  /// for the grace that none is registered, and that where each listened nobody does: members that live and are cut off
  /// from the store train on, and their doors answer. Where a node is gone or cut off nothing answers either way, and
  /// its job waits for a person. Who was taken for gone says of the others that they are, where they die as they enter
  /// a world: it may hold what that world was made of.
  bool end(const job_record& r) {
    member_list all = r.concerned();
    if (r.phase == job_phase::entering && has_member(r.gone, core_.me()))
      std::erase_if(all, [&](const member_name& who) { return has_member(r.gone, who); });
    const bool may_be = r.epoch > 0 && !is_end(r.phase) && !has_member(all, core_.me()) &&
                        core_.locked([&] { return has_none(core_.registered(), all); });
    if (!may_be) since_.reset();
    else if (!since_) since_ = looked_ = member_clock::now();
    if (!may_be || seconds_since(*since_) < seconds(core_.settings.grace) || seconds_since(looked_) < look_every)
      return false;
    looked_ = member_clock::now();
    if (!std::all_of(all.begin(), all.end(), [&](const member_name& who) { return listens_no_more(who); }))
      return false;
    job_event e = event_about(r, r.phase == job_phase::recovering ? job_event_kind::nobody : job_event_kind::broke);
    e.members = all;
    return core_.happen(e);
  }

 private:
  static constexpr double look_every = 0.1;  // seconds

  static bool has_none(const member_list& there, const member_list& of) {
    return std::none_of(of.begin(), of.end(), [&](const member_name& who) { return has_member(there, who); });
  }
  /// Nothing is sure of an address that the names of this machine do not know (any more).
  bool listens_no_more(const member_name& who) const {
    const std::optional<registration> at = core_.locked([&] { return core_.where(who); });
    try {
      return at && is_deserted(at->address);
    } catch (const refusal&) {
      return false;
    }
  }

  job_core& core_;
  std::optional<member_clock::time_point> since_ = {};  // none of them is registered
  member_clock::time_point looked_ = {};
};

}  // namespace reshard::detail
