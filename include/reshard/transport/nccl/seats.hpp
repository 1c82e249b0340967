// SPDX-License-Identifier: Apache-2.0
// Before there is a communicator of NCCL: which devices of a meeting are in it, with which ranks, and under which id.
// What a device can be refused without another's help it is refused here, and the others hear why.
// Builds on: transport/meeting.hpp, transport/nccl/handles.hpp, base/refusal.hpp.
#pragma once

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include <reshard/base/refusal.hpp>
#include <reshard/transport/meeting.hpp>
#include <reshard/transport/nccl/handles.hpp>

namespace reshard {

/// The devices of a meeting that live, which outlives this.
template <Meeting M>
class nccl_seats {
 public:
  explicit nccl_seats(M& meeting) : meeting_(&meeting) {
    for (rank_t d = 0; d < meeting.devices(); ++d)
      if (!is_absent(d)) living_.push_back(d);
  }

  /// In ascending order.
  const std::vector<rank_t>& living() const { return living_; }
  int count() const { return static_cast<int>(living_.size()); }
  /// A device's rank in the communicator.
  int of(rank_t d) const {
    return static_cast<int>(std::lower_bound(living_.begin(), living_.end(), d) - living_.begin());
  }

  /// Begins on a GPU by begin(), and agrees with all others, who do so too, on the communicator's id; there is none
  /// where all lend one. Refused on all where one can't, or has another NCCL, or some lend and others don't.
  template <typename Begin>
  ncclUniqueId agree(int gpu, bool lends, Begin&& begin) const {
    int version = 0;
    ncclUniqueId id = {};
    proposal mine{.addend = lends ? 1u : 0u};
    std::exception_ptr why;
    try {
      detail::require_nccl(::ncclGetVersion(&version), "say its version");
      const on_device here(gpu);
      begin();
      if (meeting_->device() == living_.front() && !lends)
        detail::require_nccl(::ncclGetUniqueId(&id), "make a unique id");
      mine.number = version;
    } catch (const std::exception& e) {
      mine.sentence = e.what();
      why = std::current_exception();
    }
    const agreement all = meeting_->agree(mine);
    if (why) std::rethrow_exception(why);
    if (all.refuser >= 0)
      throw peer_failed(
          detail::text_of("reshard: no world over NCCL, as device ", all.refuser, " says: ", all.sentence));
    const std::int64_t oldest = -meeting_->agree({-std::int64_t{version}}).largest;
    if (oldest != all.largest)
      refuse("the devices have NCCL of versions ", oldest, " to ", all.largest, "; a world has one");
    const auto lend = static_cast<int>(all.sum);
    if (lend != 0 && lend != count()) refuse(lend, " of ", count(), " devices lend a communicator; all do, or none");
    if (lends) return id;  // one that nobody uses would leave a thread behind that waits for all
    const std::string mine_or_none(reinterpret_cast<const char*>(&id), sizeof id);
    const std::string told = meeting_->gather(mine_or_none)[static_cast<std::size_t>(living_.front())];
    std::copy_n(told.begin(), std::min(told.size(), sizeof id), reinterpret_cast<char*>(&id));
    return id;
  }

 private:
  bool is_absent(rank_t d) const {
    const std::vector<rank_t> absent = meeting_->absent();
    return std::find(absent.begin(), absent.end(), d) != absent.end();
  }

  M* meeting_;
  std::vector<rank_t> living_;
};

}  // namespace reshard
