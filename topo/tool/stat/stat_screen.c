/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat --watch on a terminal: output that fits into the window. */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "topo/tool/stat/stat_screen.h"

struct stat_screen stat_screen_size(void)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_row < 2 || w.ws_col < 2)
        return (struct stat_screen){24, 80};
    return (struct stat_screen){w.ws_row, w.ws_col};
}

int stat_screen_lines(const char *text, size_t len)
{
    int n = 0;
    for (size_t i = 0; i < len; i++)
        n += text[i] == '\n';
    return n;
}

/* Writes a line without its newline, cut at the window's width. Escape sequences take no column. */
static void put_line(FILE *out, const char *line, size_t len, int columns)
{
    int column = 0;
    for (size_t i = 0; i < len; i++) {
        if (line[i] == '\033') {
            size_t end = i;
            while (end < len && line[end] != 'm')
                end++;
            fwrite(line + i, 1, end < len ? end + 1 - i : end - i, out);
            i = end;
            continue;
        }
        /* Continuation bytes of UTF-8 belong to the column before. */
        if (((unsigned char)line[i] & 0xc0) != 0x80)
            column++;
        if (column <= columns)
            fputc(line[i], out);
    }
}

void stat_screen_put(FILE *out, const char *text, size_t len, struct stat_screen s)
{
    int lines = stat_screen_lines(text, len), room = s.rows - 1, n = 0;
    fputs("\033[H\033[2J", out);
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t line = end ? (size_t)(end - text) : len;
        if (lines > room && n == room - 1) {
            char more[64];
            snprintf(more, sizeof(more), "... and %d more lines", lines - n);
            put_line(out, more, strlen(more), s.columns);
            fputc('\n', out);
            return;
        }
        put_line(out, text, line, s.columns);
        fputc('\n', out);
        n++;
        line += end != NULL;
        text += line;
        len -= line;
    }
}
