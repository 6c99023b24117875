/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The syntax of NCCL_IB_HCA and NCCL_SOCKET_IFNAME (NCCL 2.30.7, src/misc/utils.cc): an optional
 * '^' (all but these), an optional '=' (whole names instead of prefixes), then NAME or NAME:PORT
 * separated by commas or blanks. Empty items count as not there.
 *
 * Nothing here allocates or keeps a pointer beyond the text given, so any thread may call it. */
#ifndef PVN_BASE_DEV_LIST_H
#define PVN_BASE_DEV_LIST_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_dev_list {
    bool empty;   /* holds no name: every device passes */
    bool exclude; /* '^' */
    bool exact;   /* '=' */
    const char *items;
};

/* text may be NULL, which is an empty list. items points into text. */
struct pvn_dev_list pvn_dev_list_parse(const char *text);

/* Steps through the items, starting with *at = list.items; item is not NUL-terminated. False at the
 * end. */
bool pvn_dev_list_next(const char **at, const char **item, size_t *len);

/* Whether one item names this device. Port 0 stands for any port, as an interface's. */
bool pvn_dev_list_item_matches(const struct pvn_dev_list *list, const char *item, size_t len,
                               const char *name, int port);

/* Whether the list lets this device through: named, or not named where it excludes. */
bool pvn_dev_list_passes(const struct pvn_dev_list *list, const char *name, int port);

/* The same from the variable's text. */
bool pvn_dev_list_matches(const char *text, const char *name, int port);

#ifdef __cplusplus
}
#endif

#endif
