// SPDX-License-Identifier: Apache-2.0
// expect: static.assert\w* failed.*a job that is done takes no request
#include <reshard/elastic.hpp>
using namespace reshard;

// The table can be asked as a program compiles.
#ifdef ACCEPT
constexpr job_phase from = job_phase::idle;
static_assert(transition_of(from, job_event_kind::ask)->to == job_phase::proposed);
#else
constexpr job_phase from = job_phase::done;
#endif
static_assert(transition_of(from, job_event_kind::ask).has_value(), "a job that is done takes no request");
