/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/dev_list.h"

#include <stdlib.h>
#include <string.h>

#define SEPARATORS ", \t\r\n"

struct pvn_dev_list pvn_dev_list_parse(const char *text)
{
    struct pvn_dev_list list = {.items = text ? text : ""};
    const char *item;
    size_t len;

    while (*list.items == ' ')
        list.items++;
    list.exclude = *list.items == '^';
    list.items += list.exclude;
    list.exact = *list.items == '=';
    list.items += list.exact;

    const char *at = list.items;
    list.empty = !pvn_dev_list_next(&at, &item, &len);
    return list;
}

bool pvn_dev_list_next(const char **at, const char **item, size_t *len)
{
    for (;;) {
        *at += strspn(*at, SEPARATORS);
        if (!**at)
            return false;
        *item = *at;
        *len = strcspn(*at, SEPARATORS);
        *at += *len;
        if (**item != ':')
            return true;
    }
}

bool pvn_dev_list_item_matches(const struct pvn_dev_list *list, const char *item, size_t len,
                               const char *name, int port)
{
    const char *colon = memchr(item, ':', len);
    size_t n = colon ? (size_t)(colon - item) : len;

    if (n == 0 || strncmp(item, name, n) != 0 || (list->exact && name[n] != '\0'))
        return false;
    return !colon || port == 0 || atoi(colon + 1) == port;
}

bool pvn_dev_list_passes(const struct pvn_dev_list *list, const char *name, int port)
{
    const char *at = list->items, *item;
    size_t len;

    while (pvn_dev_list_next(&at, &item, &len))
        if (pvn_dev_list_item_matches(list, item, len, name, port))
            return !list->exclude;
    return list->empty || list->exclude;
}

bool pvn_dev_list_matches(const char *text, const char *name, int port)
{
    struct pvn_dev_list list = pvn_dev_list_parse(text);

    return pvn_dev_list_passes(&list, name, port);
}
