/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The syntax of NCCL_IB_HCA and NCCL_SOCKET_IFNAME (NCCL 2.30.7, src/misc/utils.cc): an optional
 * '^' (all but these), an optional '=' (whole names instead of prefixes), then
 * NAME[:PORT[:RAIL[:PLANE]]] separated by commas or blanks. An item without a name is ignored. An empty
 * field counts as left out.
 *
 * No function allocates or keeps a pointer, so any thread may call them. A struct pvn_dev_list points into
 * its text. */
#ifndef PVN_BASE_DEV_LIST_H
#define PVN_BASE_DEV_LIST_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_dev_list {
    bool empty;   /* the list has no name, so every device passes */
    bool exclude; /* '^' */
    bool exact;   /* '=' */
    const char *items;
};

/* Parses a list. text may be NULL, which is an empty list. */
struct pvn_dev_list pvn_dev_list_parse(const char *text);

/* Steps through the items, starting with *at = list.items; item is not NUL-terminated. False at the
 * end. */
bool pvn_dev_list_next(const char **at, const char **item, size_t *len);

/* True if the item names this device. Port 0 matches any port; network interfaces have port 0. */
bool pvn_dev_list_item_matches(const struct pvn_dev_list *list, const char *item, size_t len,
                               const char *name, int port);

/* The rail and the plane of the item for this device; -1 if the item has none. */
void pvn_dev_list_place(const char *text, const char *name, int port, int *rail, int *plane);

/* The first item that begins with ^ or =, which have a meaning only before the whole list, as in
 * "^docker0,^lo"; NULL if there is none. *len: length of the item. */
const char *pvn_dev_list_misplaced(const char *text, size_t *len);

/* Warns of such an item in the value `text` of `variable`, and suggests a corrected value. */
void pvn_dev_list_warn(const char *variable, const char *text);

/* True if the list allows this device: the list names it, or the list excludes and does not name it. */
bool pvn_dev_list_matches(const char *text, const char *name, int port);

#ifdef __cplusplus
}
#endif

#endif
