// SPDX-License-Identifier: Apache-2.0
// Slot by slot: sums over slots are the plans' and the formula's.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/cost/simulate.hpp>
#include <reshard/cost/slot_traffic.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

using namespace reshard;

namespace {
constexpr model tiny = make_transformer(
    {.name = "small", .layers = 4, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 2, .ffn = 8, .vocabulary = 12});
const cluster two_nics{
    .gpus = 3,
    .each = {.nics = 2, .nvlink_GBps = 1e-3, .nic_GBps = 2e-4, .copy_GBps = 5e-3, .spine_GBps = 1e-4},
    .message_us = 3,
    .stage_us = 7};
}  // namespace

TEST_CASE("sums over slots: bytes of every device by its plan, and the formula's seconds") {
  bytes_t near = 0, far = 0, across = 0;
  for (const char* to : {"tp=4,dp=2", "pp=4,dp=2,zero=1", "dp=7"})
    for (const index_t stages : {1, 2, 5, 300}) {
      CAPTURE(to);
      CAPTURE(stages);
      const layout_switch change(space(tiny, parse_degrees("tp=2,pp=2,zero=1")), space(tiny, parse_degrees(to)),
                                 {.on = two_nics});
      simulator all(change);
      std::vector<plan> plans;
      for (rank_t d = 0; d < change.devices(); ++d) plans.push_back(make_plan(change, d)), all.add(plans.back());
      std::vector<device_traffic> sum(all.on().seats().size());
      double seconds = 0;
      for (index_t k = 0; k < stages; ++k) {
        const slot_traffic slot = traffic_of_slot(all.on(), all.streams(), k, stages);
        seconds += slot.seconds;
        CHECK(slot.seconds >= 7e-6);
        for (std::size_t i = 0; i < sum.size(); ++i)
          for (port_traffic device_traffic::*port : {&device_traffic::nic_out, &device_traffic::nic_in,
                                                     &device_traffic::nvlink_out, &device_traffic::nvlink_in}) {
            (sum[i].*port).bytes += (slot.devices[i].*port).bytes;
            (sum[i].*port).messages += (slot.devices[i].*port).messages;
            (sum[i].*port).across_rails += (slot.devices[i].*port).across_rails;
          }
      }
      CHECK(seconds == doctest::Approx(seconds_of(all.on(), all.streams(), stages).total()).epsilon(3e-4));
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const plan& p = plans[static_cast<std::size_t>(all.on().seats()[i].device)];
        bytes_t out[2] = {}, in[2] = {}, over[2] = {};
        for (const transfer& t : p.sends) {
          out[t.dst / 3 == p.device / 3 ? 1 : 0] += t.bytes();
          if (two_nics.crosses_rails(t.src, t.dst)) over[0] += t.bytes();
        }
        for (const transfer& t : p.receives) {
          in[t.src / 3 == p.device / 3 ? 1 : 0] += t.bytes();
          if (two_nics.crosses_rails(t.src, t.dst)) over[1] += t.bytes();
        }
        CHECK(sum[i].nic_out.bytes == out[0]);
        CHECK(sum[i].nvlink_out.bytes == out[1]);
        CHECK(sum[i].nic_in.bytes == in[0]);
        CHECK(sum[i].nvlink_in.bytes == in[1]);
        CHECK(sum[i].nic_out.across_rails == over[0]);
        CHECK(sum[i].nic_in.across_rails == over[1]);
        CHECK(sum[i].by(port_kind::nvlink_in) == sum[i].nvlink_in);
        CHECK(sum[i].by(port_kind::nic_in) == sum[i].nic_in);
        far += out[0], near += out[1], across += over[0];
        if (stages == 1) {
          std::vector<rank_t> peers;
          for (const transfer& t : p.sends)
            if (peers.empty() || peers.back() != t.dst) peers.push_back(t.dst);
          CHECK(sum[i].nic_out.messages + sum[i].nvlink_out.messages == static_cast<index_t>(peers.size()));
        }
      }
    }
  CHECK(near > 0);
  CHECK(far > 0);
  CHECK(across > 0);
}
