// SPDX-License-Identifier: Apache-2.0
// The keys of a job in the store. Everything that members tell one another without a connection stands under one
// prefix, and is watched by it.
// Builds on: elastic/member_name.hpp, base/text.hpp.
#pragma once

#include <string>
#include <string_view>

#include <reshard/base/integer.hpp>
#include <reshard/base/text.hpp>
#include <reshard/elastic/member_name.hpp>

namespace reshard {

/// "reshard/llama/record", "reshard/llama/members/node3.0#2", "reshard/llama/requests/r7", ..
class job_keys {
 public:
  explicit job_keys(std::string_view job) : prefix_("reshard/" + std::string(member_name(job).text()) + "/") {}

  const std::string& prefix() const { return prefix_; }
  std::string record() const { return prefix_ + "record"; }
  /// A member's registration, which goes with its lease: where it is called, and its node.
  std::string members() const { return prefix_ + "members/"; }
  /// Where a member is called, as long as the job is: also of one that is about to leave, and is registered no more.
  std::string places() const { return prefix_ + "places/"; }
  /// How long a member's own parts of steps take.
  std::string paces() const { return prefix_ + "paces/"; }
  /// Created only if absent: a request that is said again is that request.
  std::string requests() const { return prefix_ + "requests/"; }
  std::string answers() const { return prefix_ + "answers/"; }
  /// What members say about an attempt of an epoch: "here", "ready", "acked.120", ..
  std::string said(index_t epoch, index_t attempt, std::string_view what) const {
    return detail::text_of(prefix_, "said/", epoch, ".", attempt, "/", what, "/");
  }
  std::string said() const { return prefix_ + "said/"; }

 private:
  std::string prefix_;
};

/// What a member registers: "host:port host:port node"
struct registration {
  std::string address;  // at which worlds call it
  std::string pulses;   // at which its neighbours do
  std::string node;

  std::string text() const { return address + " " + pulses + " " + node; }
  static registration of(std::string_view text) {
    registration r;
    const std::size_t first = text.find(' '), second = first == text.npos ? text.npos : text.find(' ', first + 1);
    if (second == text.npos)
      refuse("registration '", std::string(text.substr(0, 100)), "': it is an address, another for pulses, and a node");
    r.address = text.substr(0, first);
    r.pulses = text.substr(first + 1, second - first - 1);
    r.node = text.substr(second + 1);
    return r;
  }
};

}  // namespace reshard
