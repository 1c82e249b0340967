// SPDX-License-Identifier: Apache-2.0
// A door: all planning, from sets of integers to staged plans, what they cost, and what a job asks when its
// size changes. It needs C++20 alone; what moves bytes has doors of its own (switching.hpp and those that build on it).
#pragma once

#include <reshard/base/version.hpp>
#include <reshard/cost/choose_routing.hpp>
#include <reshard/cost/compare_layouts.hpp>
#include <reshard/cost/compiled_once.hpp>
#include <reshard/cost/direct_stages.hpp>
#include <reshard/cost/floor_seconds.hpp>
#include <reshard/cost/simulate.hpp>
#include <reshard/cost/switch_bytes.hpp>
#include <reshard/job/batch.hpp>
#include <reshard/job/cursor.hpp>
#include <reshard/job/documents.hpp>
#include <reshard/job/history.hpp>
#include <reshard/job/order.hpp>
#include <reshard/job/rate.hpp>
#include <reshard/job/throughput.hpp>
#include <reshard/model/pieces.hpp>
#include <reshard/model/presets.hpp>
#include <reshard/model/require_model.hpp>
#include <reshard/parallelism/config.hpp>
#include <reshard/parallelism/legal_layouts.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/plan/unread.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/schedule/stage_count.hpp>
#include <reshard/schedule/xor_order.hpp>
#include <reshard/space/computed_holding.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/listed_holding.hpp>
#include <reshard/space/static_space.hpp>
#include <reshard/space/sub_space.hpp>

#define RESHARD_HAS_DOORS
