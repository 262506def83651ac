// Preloaded (`node --import`): a server that would listen on every address of the machine listens on loopback only,
// and says where.

import net from "node:net";

const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (port, ...rest) {
  this.once("listening", () => console.error(`http://127.0.0.1:${this.address().port}`));
  return listen.call(this, { host: "127.0.0.1", port }, ...rest);
};
