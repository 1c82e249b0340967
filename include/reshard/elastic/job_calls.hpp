// SPDX-License-Identifier: Apache-2.0
// What a job is told of, and what it asks its trainer: arrays for a world, small state, groups; and who watches.
// Builds on: elastic/policy.hpp, elastic/record.hpp, job/small_state.hpp, memory/binding.hpp, schedule/budget.hpp,
// transport/sockets.hpp.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/elastic/policy.hpp>
#include <reshard/elastic/record.hpp>
#include <reshard/job/cursor.hpp>
#include <reshard/job/small_state.hpp>
#include <reshard/memory/binding.hpp>
#include <reshard/schedule/budget.hpp>
#include <reshard/transport/sockets.hpp>

namespace reshard {

/// What a member brings: its name, where it is called, and what a job that is not founded yet shall begin as.
struct job_settings {
  std::string job = "job";
  member_name me = {};
  std::string listen = "127.0.0.1:0";
  std::string node = "here";  // members of other nodes hear one another's pulses first
  reshard::model model = {};
  state_list list = adam;
  index_t found = 1;                  // as many members found the job
  degrees layout = {};                // of the first world
  index_t batch = 1;                  // of the first world, samples a step
  std::optional<index_t> steps = {};  // the job is done after so many
  index_t snapshot =
      0;  // every so many steps members copy their state, and what they hold alone to the next one; 0: none
  // A planned switch takes at most so much beyond the larger of both states, and gives its sources back as it goes; the
  // same on all members. Without one they stay until all have entered; after a death they stay in any case.
  bytes_t budget = no_budget;
  elastic_policy policy = {};
  patience lease = std::chrono::seconds(3);         // after so long without a renewal the store forgets a member
  patience wait = std::chrono::seconds(1);          // who says nothing for so long is a suspect
  patience grace = std::chrono::milliseconds(300);  // so long a suspect is given to promise
  patience ready = std::chrono::seconds(60);  // so long a change waits for everybody's groups, and for who is late
  patience comes = std::chrono::seconds(10);  // .. and who is asked to join is waited for to register
  patience window = std::chrono::seconds(2);  // over which a member's own time of a step is averaged
};

/// A data-parallel rank's samples of a step: dense rank (cp, dp) of so many that differ in dp alone.
struct sample_share {
  index_t step = 0;
  interval samples = {};
  rank_t dp = 0, of = 1;
};

/// A world whose group is made: by rank where its members are called, and a number that is this making's alone.
struct group_request {
  const world* next = nullptr;
  rank_t rank = 0;
  std::vector<std::string> addresses;
  std::uint64_t number = 0;
};

/// What a job asks of its trainer. Those about groups are called on threads of the job's own, while steps go on, but
/// that groups are made on the trainer's where the job is founded and after a death; all others between two steps, on
/// the trainer's.
struct trainer_calls {
  /// Makes the group of a world of which this member is rank `rank`; the token ends what waits in it, the making too.
  /// What is called at the job's door ends before the job does.
  std::function<void(const group_request&, std::stop_token)> make_group = {};
  /// Ends every wait in the group of the world that steps are made in, from another thread: a member of it is
  /// gone, or the job went on without this one.
  std::function<void(const std::string& sentence)> interrupt = {};
  /// The arrays of a world's rank, which are the trainer's until a later world is entered; rank -1 has none. They are
  /// kept beside those of the world of now; with a budget all that were made since that was entered are kept until the
  /// next one is, as state may lie in several of them, but those that are given up.
  std::function<binding(const world&, rank_t)> tensors = {};
  /// Nothing of the state lies in the arrays that were made for the world of that epoch, which was not entered. Who
  /// leaves it out keeps them until the next world is entered.
  std::function<void(index_t epoch)> given_up = {};
  /// Values of the first world's arrays.
  std::function<void(const world&, rank_t)> initialize = {};
  /// The arrays of that world are the state now, and its group is the group; rank -1 has neither.
  std::function<void(const world&, rank_t)> entered = {};
  /// Makes the update of the step whose gradients were whole, with the scalar of those who knew it.
  std::function<void(double scalar)> update = {};
  /// What is the same on all members beside tensors, and who takes it; both or none. What is of one rank alone is
  /// refused, as nobody would have it afterwards; after a death who has such keeps it.
  std::function<small_state()> small = {};
  std::function<void(const small_state&)> take_small = {};
};

/// A step: gradients (collectives, no state is touched), scalar (the last collective), update (no collective).
struct step_calls {
  std::function<void(const sample_share&)> gradients;
  std::function<double()> scalar;
  std::function<void(double)> update;
  /// Seconds of the step that was just made that were this member's own: without what it waited for others. By
  /// these the job finds out who is slow; without it nobody is.
  std::function<double()> own = {};
};

/// Who watches a job: called by any of its threads, several at a time; what is not overridden is passed over.
struct job_watcher {
  virtual ~job_watcher() = default;
  /// It came to a place in the protocol: "registered", "acked", "swap-broke", "swapped-broke", ..
  virtual void at(std::string_view /*where*/) {}
  virtual void entered(const world&, std::string_view /*why*/, double /*switch_seconds*/) {}
  virtual void samples(index_t /*epoch*/, const sample_share&) {}
  virtual void stopped(index_t /*step*/, double /*waited*/) {}
  virtual void gone(const member_name&, std::string_view /*by*/, double /*after*/) {}
  /// Members are slow, and no spare came for them in the policy's time: so it stays.
  virtual void slow(const member_list&, const std::string& /*why*/) {}
  /// The state is held, and no world that the policy allows can be made of who is there: why by which rung. The job
  /// waits until somebody comes or promises late, or the policy's wait is over. Or who has its lease and does not
  /// promise may hold what nobody else has.
  virtual void waiting(const std::string& /*why*/) {}
  virtual void broken(index_t /*epoch*/, std::string_view /*why*/, index_t /*version*/) {}
  /// A step, a change, or the sending of copies broke off; by this alone nobody is gone.
  virtual void failed(const std::string& /*sentence*/) {}
  virtual void answered(const member_name& /*request*/, std::string_view /*answer*/) {}
};

/// How a job ends for a member.
enum class job_end { runs, done, left, expelled, lost, refused };
/// Ends by their numbers, in the words of a log.
inline constexpr std::string_view job_end_names[] = {"runs", "done", "left", "expelled", "lost", "refused"};
/// "expelled"
constexpr std::string_view name(job_end e) { return job_end_names[static_cast<std::size_t>(e)]; }

}  // namespace reshard
