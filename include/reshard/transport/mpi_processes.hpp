// SPDX-License-Identifier: Apache-2.0
// The processes of a job over MPI: started together, none comes and none goes. Worlds among some of them are
// communicators of subsets, made by their members alone while the others go on.
// Builds on: transport/mpi.hpp, transport/mpi/gathering.hpp, transport/group_cache.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <reshard/transport/group_cache.hpp>
#include <reshard/transport/mpi.hpp>
#include <reshard/transport/mpi/gathering.hpp>

namespace reshard {

/// One process's end of the set; it outlives the groups that it makes, which one thread at a time does: a cache's.
/// A communicator is made once for the same members in the same order, and stays until the set ends: MPI would give its
/// number to another one while words to who kept it longer are on their way.
class mpi_processes {
  using ranks = std::vector<rank_t>;

 public:
  /// Called by all processes of `all`, which is duplicated; peer_missing where not all come within the patience, which
  /// is also that of the groups.
  explicit mpi_processes(MPI_Comm all, const mpi_options& options = {})
      : options_(options), own_(all, options.wait), gathering_(own_, gathering_tag, options.wait) {
    detail::require_mpi(MPI_Query_thread(&level_), "say on which threads it may be used");
  }
  mpi_processes(const mpi_processes&) = delete;
  mpi_processes& operator=(const mpi_processes&) = delete;
  ~mpi_processes() {
    for (const std::unique_ptr<mpi_meeting>& one : past_) one->abandon();
    try {
      if (!detail::mpi_runs() || !gathering_.ends()) own_.abandon();
    } catch (const std::exception&) {  // nobody is left to hear it
      own_.abandon();
    }
  }

  rank_t process() const { return own_.device(); }
  rank_t processes() const { return own_.devices(); }
  /// Communicators that it has made; MPI has some thousands.
  index_t made() const { return made_.load(); }

  /// Beside the steps iff MPI may be called by any thread; else only the thread that began MPI, or one at a time, may.
  groups_are_made where() const {
    return level_ == MPI_THREAD_MULTIPLE ? groups_are_made::in_background : groups_are_made::where_asked;
  }
  /// Why groups are made at the boundary; empty where they are made in the background.
  std::string why_at_boundary() const {
    if (where() == groups_are_made::in_background) return {};
    const char* const level = level_ == MPI_THREAD_SINGLE     ? "MPI_THREAD_SINGLE"
                              : level_ == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED"
                                                              : "MPI_THREAD_SERIALIZED";
    return detail::text_of("groups are made at the boundary and not beside the steps: MPI gave ", level,
                           ", and another thread needs MPI_THREAD_MULTIPLE; ask MPI_Init_thread for it");
  }

  /// An end of a world among these processes, numbers in rank order, made by all of them and nobody else: who makes
  /// several makes them in the order in which the others do. peer_missing where not all come, as mpi_gathering has it;
  /// peer_failed where `stop` is requested before they have. An end that goes tells nobody: where a member keeps one
  /// that others want anew they wait for it in vain, so a cache keeps as many as there are worlds, or all drop one
  /// together. Refused: a process that MPI did not start, one named twice, a group without this one.
  std::shared_ptr<mpi_endpoint> make(const ranks& members, const std::stop_token& stop = {}) {
    require_subset(members);
    numbered& there = meetings_[members];
    const bool serves = there.last != nullptr && !there.in_use->load() && !there.last->broken();
    const std::int64_t has = serves ? there.number : 0;
    if (const std::int64_t number = gathering_.meet(members, has, stop); number != has) {
      MPI_Comm made = communicator_of(members);
      if (there.last != nullptr) past_.push_back(std::move(there.last));
      ++made_;
      there = {number, std::make_unique<mpi_meeting>(made, options_.wait)};
      MPI_Comm_free(&made);  // the meeting has a duplicate of it
    }
    auto end = std::make_unique<mpi_endpoint>(*there.last, options_);
    there.in_use->store(true);
    return {end.release(), [used = there.in_use](mpi_endpoint* gone) {
              delete gone;
              used->store(false);
            }};
  }

 private:
  static constexpr int gathering_tag = 1, making_tag = 2;
  struct numbered {
    std::int64_t number = 0;
    std::unique_ptr<mpi_meeting> last = {};
    std::shared_ptr<std::atomic<bool>> in_use = std::make_shared<std::atomic<bool>>(false);  // by an end that lives
  };
  struct group_handle {
    MPI_Group of = MPI_GROUP_NULL;
    ~group_handle() {
      if (of != MPI_GROUP_NULL) MPI_Group_free(&of);
    }
  };

  void require_subset(const ranks& members) const {
    for (const rank_t p : members) {
      if (p < 0 || p >= processes())
        refuse("a group with process ", p, ", and MPI started ", processes(), ", 0 to ", processes() - 1,
               ": a job over MPI neither gains a process nor loses one");
      if (std::count(members.begin(), members.end(), p) > 1) refuse("a group that names process ", p, " twice");
    }
    if (std::find(members.begin(), members.end(), process()) == members.end())
      refuse("process ", process(), " makes a group of ", members.size(), " that it is not in");
  }
  MPI_Comm communicator_of(const ranks& members) const {
    std::vector<int> of;
    for (const rank_t p : members) of.push_back(static_cast<int>(p));
    MPI_Comm made = MPI_COMM_NULL;
    group_handle all, some;
    detail::require_mpi(MPI_Comm_group(own_.get(), &all.of), "name its processes");
    detail::require_mpi(MPI_Group_incl(all.of, static_cast<int>(of.size()), of.data(), &some.of), "name a group");
    detail::require_mpi(MPI_Comm_create_group(own_.get(), some.of, making_tag, &made), "make a communicator");
    return made;
  }

  mpi_options options_;
  mpi_communicator own_;
  mpi_gathering gathering_;
  int level_ = MPI_THREAD_SINGLE;
  std::atomic<index_t> made_ = 0;
  std::map<ranks, numbered> meetings_;
  std::vector<std::unique_ptr<mpi_meeting>> past_;  // that broke, here or elsewhere, or are in use yet
};

}  // namespace reshard
