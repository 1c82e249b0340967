// SPDX-License-Identifier: Apache-2.0
// What the examples include most of, compiled once for all of them where the compiler gains by it. Each includes what
// it uses all the same.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <reshard/reshard.hpp>
#include <reshard/switching.hpp>
