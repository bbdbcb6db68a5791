// The Resend emulator of the npm package `emulate`, with webhooks signed by Svix's npm package.
//
//   node emulate.mjs NODE_MODULES PORT WEBHOOK_URL SECRET
//
// It dispatches email.sent and email.delivered, but its API has no way to subscribe, and its own
// signature is GitHub's. So both are added where its plugin is registered.
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, port, url, secret] = process.argv.slice(2);
const { Webhook } = createRequire(join(modules, "x.js"))("svix");
const folder = join(modules, "emulate", "dist");
const load = (name) => import(pathToFileURL(join(folder, name)));
const isPlugin = (name) => readFileSync(join(folder, name), "utf8").includes("  resendPlugin,");
const { resendPlugin } = await load(
  readdirSync(folder).find((name) => name.endsWith(".js") && isPlugin(name)),
);
const register = resendPlugin.register;

resendPlugin.register = (app, store, webhooks, ...rest) => {
  webhooks.setHeaderFactory(({ body, deliveryId }) => {
    const id = `msg_${deliveryId}`;
    const now = new Date();
    return {
      "Content-Type": "application/json",
      "svix-id": id,
      "svix-timestamp": String(Math.floor(now / 1000)),
      "svix-signature": new Webhook(secret).sign(id, now, body),
    };
  });
  webhooks.register({ url, events: ["*"], active: true, owner: "resend" });
  register.call(resendPlugin, app, store, webhooks, ...rest);
};
const { createEmulator } = await load("api.js");
const emulator = await createEmulator({ service: "resend", port: Number(port) });
console.log(emulator.url);
