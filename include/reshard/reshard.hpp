// SPDX-License-Identifier: Apache-2.0
// The umbrella: everything that needs only C++20, from sets of integers to staged plans. The rooms that name a runtime
// or a library (memory/, copy/, exec/, io/) are included by themselves.
#pragma once

#include <reshard/base/version.hpp>
#include <reshard/job/batch.hpp>
#include <reshard/job/documents.hpp>
#include <reshard/job/history.hpp>
#include <reshard/job/order.hpp>
#include <reshard/job/rate.hpp>
#include <reshard/job/throughput.hpp>
#include <reshard/model/presets.hpp>
#include <reshard/parallelism/config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/unread.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/schedule/direct_stages.hpp>
#include <reshard/schedule/figures.hpp>
#include <reshard/schedule/stage_count.hpp>
#include <reshard/schedule/xor_order.hpp>
#include <reshard/space/computed_holding.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/listed_holding.hpp>
#include <reshard/space/static_space.hpp>
#include <reshard/space/sub_space.hpp>
