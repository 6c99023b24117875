/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The syntax of NCCL_IB_HCA and NCCL_SOCKET_IFNAME (NCCL 2.30.7, src/misc/utils.cc): an optional
 * '^' (all but these), an optional '=' (whole names instead of prefixes), then
 * NAME[:PORT[:RAIL[:PLANE]]] separated by commas or blanks. An item without a name counts as not
 * there, and an empty field as one that is left out.
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

/* True if one item names this device. Port 0 stands for any port, as an interface's. */
bool pvn_dev_list_item_matches(const struct pvn_dev_list *list, const char *item, size_t len,
                               const char *name, int port);

/* True if the list lets this device through: named, or not named where it excludes. */
bool pvn_dev_list_passes(const struct pvn_dev_list *list, const char *name, int port);

/* The rail and the plane that the item for this device gives; -1 where it gives none. */
void pvn_dev_list_place(const char *text, const char *name, int port, int *rail, int *plane);

/* The first item that begins with ^ or = although that counts only before the whole list, as in
 * "^docker0,^lo"; NULL: there is none. *len: its bytes. */
const char *pvn_dev_list_misplaced(const char *text, size_t *len);

/* Warns of such an item in the value of `variable`, with what was probably meant. */
void pvn_dev_list_warn(const char *variable, const char *text);

/* pvn_dev_list_passes for the variable's text. */
bool pvn_dev_list_matches(const char *text, const char *name, int port);

#ifdef __cplusplus
}
#endif

#endif
