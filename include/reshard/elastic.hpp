// SPDX-License-Identifier: Apache-2.0
// A door: the values of a job whose worlds change while it trains, and the functions that say what comes next. Nothing
// here runs: no thread, socket or clock. It needs C++20 alone.
#pragma once

#include <reshard/elastic/boundary.hpp>
#include <reshard/elastic/decide.hpp>
#include <reshard/elastic/next.hpp>
#include <reshard/elastic/record_text.hpp>
#include <reshard/elastic/request.hpp>
#include <reshard/elastic/standing.hpp>
#include <reshard/elastic/take_up.hpp>
