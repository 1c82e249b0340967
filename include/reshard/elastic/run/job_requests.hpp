// SPDX-License-Identifier: Apache-2.0
// Requests to a job as one member sees them: the oldest that has no answer, and who is asked to come and is not there.
// Builds on: elastic/run/job_core.hpp, elastic/request.hpp.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/request.hpp>
#include <reshard/elastic/run/job_core.hpp>

namespace reshard::detail {

class job_requests {
 public:
  explicit job_requests(job_core& core) : core_(core) {}

  /// The oldest request without an answer; what can't be read is answered at once.
  std::optional<job_request> first() {
    const auto open = core_.locked([&] {
      auto all = core_.under(core_.keys.requests());
      std::erase_if(all, [&](const auto& one) { return core_.known.contains(core_.keys.answers() + one.first); });
      return all;
    });
    for (const auto& [id, text] : open) {
      try {
        return request_of(text.value);
      } catch (const refusal& why) {
        core_.answer(member_name(id), to_text(refused_by(why)));
      }
    }
    return {};
  }
  bool is_answered(const member_name& id) { return core_.is_known(core_.keys.answers() + std::string(id.text())); }

  /// Who is registered, and not in the world.
  member_list spares(const world& now) {
    member_list all = core_.locked([&] { return core_.registered(); });
    std::erase_if(all, [&](const member_name& who) { return now.has(who); });
    return all;
  }
  /// Who is asked to come may be starting yet: it is given some time to register.
  bool waits_for_comers(const job_request& q, const world& now, const member_list& spares) {
    member_list comers;
    if (q.kind == request_kind::join) comers = q.members;
    if (q.kind == request_kind::replace) comers = {q.members[1]};
    std::erase_if(comers, [&](const member_name& who) { return now.has(who) || has_member(spares, who); });
    if (comers.empty()) return false;
    if (waits_for_ != q.id) waits_for_ = q.id, since_ = member_clock::now();
    return seconds_since(since_) < seconds(core_.settings.comes);
  }

  /// A job that is over answers what is asked of it.
  void answer_rest(const job_record& r) {
    while (const std::optional<job_request> open = first())
      core_.answer(open->id, open->id == r.request ? "done" : text_of("refused: the job is ", name(r.phase)));
  }

 private:
  job_core& core_;
  member_name waits_for_ = {};
  member_clock::time_point since_ = {};
};

}  // namespace reshard::detail
