/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/dev_list.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

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

/* The number in the n-th field after the name; -1 if the field is empty or left out. */
static int number_in(const char *item, size_t len, int n)
{
    const char *end = item + len;

    while (n-- > 0) {
        item = memchr(item, ':', (size_t)(end - item));
        if (!item)
            return -1;
        item++;
    }
    return item < end && *item != ':' ? atoi(item) : -1;
}

bool pvn_dev_list_item_matches(const struct pvn_dev_list *list, const char *item, size_t len,
                               const char *name, int port)
{
    const char *colon = memchr(item, ':', len);
    size_t n = colon ? (size_t)(colon - item) : len;

    if (n == 0 || strncmp(item, name, n) != 0 || (list->exact && name[n] != '\0'))
        return false;
    int wanted = number_in(item, len, 1);
    return wanted == -1 || port == 0 || wanted == port;
}

void pvn_dev_list_place(const char *text, const char *name, int port, int *rail, int *plane)
{
    struct pvn_dev_list list = pvn_dev_list_parse(text);
    const char *at = list.items, *item;
    size_t len;

    *rail = *plane = -1;
    while (!list.exclude && pvn_dev_list_next(&at, &item, &len)) {
        if (!pvn_dev_list_item_matches(&list, item, len, name, port))
            continue;
        *rail = number_in(item, len, 2);
        *plane = number_in(item, len, 3);
        break;
    }
    if (*rail < 0 || *rail > INT16_MAX) /* NCCL's railId is an int16_t */
        *rail = -1;
    if (*plane < 0 || *plane > INT16_MAX)
        *plane = -1;
}

const char *pvn_dev_list_misplaced(const char *text, size_t *len)
{
    struct pvn_dev_list list = pvn_dev_list_parse(text);
    const char *at = list.items, *item;

    while (pvn_dev_list_next(&at, &item, len))
        if (*item == '^' || *item == '=')
            return item;
    return NULL;
}

void pvn_dev_list_warn(const char *variable, const char *text)
{
    struct pvn_dev_list list = pvn_dev_list_parse(text);
    const char *at = list.items, *item;
    char meant[256] = "", *end = meant;
    size_t len, left = sizeof(meant);

    if (!pvn_dev_list_misplaced(text, &len))
        return;
    while (pvn_dev_list_next(&at, &item, &len)) {
        size_t skip = strspn(item, "^=");
        int n =
            snprintf(end, left, "%s%.*s", end == meant ? "" : ",", (int)(len - skip), item + skip);

        if (n < 0 || (size_t)n >= left)
            break;
        end += n;
        left -= (size_t)n;
    }
    pvn_warn(
        "%s=%s: ^ (all but these) and = (whole names) count only before the whole list; a name that "
        "begins with one matches nothing. Probably meant: %s%s%s",
        variable, text, list.exclude ? "^" : "", list.exact ? "=" : "", meant);
}

bool pvn_dev_list_matches(const char *text, const char *name, int port)
{
    struct pvn_dev_list list = pvn_dev_list_parse(text);
    const char *at = list.items, *item;
    size_t len;

    while (pvn_dev_list_next(&at, &item, &len))
        if (pvn_dev_list_item_matches(&list, item, len, name, port))
            return !list.exclude;
    return list.empty || list.exclude;
}
