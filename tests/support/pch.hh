// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Precompiled before the tests are (see tests/local.mk). It holds GoogleTest alone: a header of the
// standard library in here would hide that a test forgot to include it.
#include <gtest/gtest.h>
