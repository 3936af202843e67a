/* Sending an open file to another process over a Unix socket. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static inline void send_file(int to, int file) {
  char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(head), &file, sizeof file);
  if (sendmsg(to, &message, 0) != 1) { perror("sendmsg"); exit(2); }
}

static inline int receive_file(int from) {
  char room[CMSG_SPACE(sizeof(int))], byte;
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  int file;
  if (recvmsg(from, &message, 0) != 1) { perror("recvmsg"); exit(2); }
  memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
  return file;
}
