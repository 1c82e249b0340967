// SPDX-License-Identifier: Apache-2.0
// What tools/train says: lines of JSON, lines for a person, a picture.
#pragma once

#include "run.hpp"

namespace train {

std::string json_of(const step_report& r);
std::string json_of(const change_report& r);
std::string json_of(const end_report& r);

/// "step 30  loss 2.3456  tp=2,pp=2 on 8 devices"
std::string line_of(const step_report& r);
std::string line_of(const change_report& r);

/// Loss against step, the undisturbed run below it, the floor of the language, switches; and the difference.
std::string picture_of(const told_by_run& run, const told_by_run& alone, const job& all);

}  // namespace train
