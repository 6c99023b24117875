// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Compares our own declarations of another library with its headers.
#ifndef PVN_TESTS_SUPPORT_SAME_SHAPE_H
#define PVN_TESTS_SUPPORT_SAME_SHAPE_H

#include <type_traits>

#include <gtest/gtest.h>

#define SAME(ours, theirs) EXPECT_EQ(static_cast<long>(ours), static_cast<long>(theirs)) << #theirs

/* True if both arguments are of one kind for the machine: pointers, structs, or integers of the
 * same size. */
template <typename A, typename B>
constexpr bool
    kSameArg = sizeof(A) == sizeof(B) && std::is_pointer<A>::value
                                             == std::is_pointer<B>::value &&std::is_class<A>::value
                                             == std::is_class<B>::value;

template <typename F, typename G> struct SameShape : std::false_type {
};
template <typename R, typename... A, typename S, typename... B>
struct SameShape<R (*)(A...), S (*)(B...)> {
    template <bool equal, typename = void> struct Args : std::false_type {
    };
    template <typename Unused>
    struct Args<true, Unused> : std::bool_constant<(kSameArg<A, B> && ...)> {
    };
    static constexpr bool value = kSameArg<R, S> && Args<sizeof...(A) == sizeof...(B)>::value;
};

#endif
