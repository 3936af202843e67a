// The status page: signs in, then shows wallet, offers, instances and charges, every few seconds. It is a plain API client.
"use strict";

const REFRESH_MILLISECONDS = 3000;
const page = (id) => document.getElementById(id);
let token = null; // kept in memory only: a reload signs out

async function call(path, options = {}) {
  const headers = { ...(options.body && { "content-type": "application/json" }), ...(token && { authorization: `Bearer ${token}` }) };
  const answer = await fetch(path, { ...options, headers });
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(body?.detail || body?.title || `the server answered ${answer.status}`);
  if (body === null) throw new Error(`the server's answer to ${path} is not JSON`);
  return body;
}

function problem(error) {
  page("problem").hidden = !error;
  page("problem").textContent = error ? error.message : "";
}

const money = (amount) => `${amount.amount} ${amount.currency}`;
const gib = (bytes) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;

function cell(content, className) {
  const td = document.createElement("td");
  if (className) td.className = className;
  td.append(content);
  return td;
}

function code(text) {
  const element = document.createElement("code");
  element.textContent = text ?? "";
  return element;
}

function rows(id, list, columns, empty) {
  const body = page(id);
  body.replaceChildren(...list.map((item) => {
    const row = document.createElement("tr");
    row.append(...columns(item));
    return row;
  }));
  if (list.length === 0) {
    const row = document.createElement("tr");
    const only = cell(empty);
    only.colSpan = 9;
    row.append(only);
    body.append(row);
  }
}

function cards(residency) {
  const list = document.createElement("div");
  for (const card of residency?.cards ?? []) {
    const line = document.createElement("div");
    const bar = document.createElement("meter");
    bar.max = card.capacity_bytes;
    bar.value = card.used_bytes;
    line.append(bar, ` ${card.role} ${gib(card.used_bytes)} of ${gib(card.capacity_bytes)}`);
    list.append(line);
  }
  return list;
}

async function refresh() {
  const [wallet, offers, instances, charges] = await Promise.all(
    ["/v1/wallet", "/v1/offers", "/v1/instances", "/v1/charges"].map((path) => call(path)));
  const live = instances.items.filter((instance) => instance.state === "running" || instance.state === "degraded");
  const residency = new Map(await Promise.all(live.map(async (instance) =>
    [instance.id, await call(`/v1/instances/${instance.id}/residency`).catch(() => null)])));

  page("wallet").textContent = `${money(wallet.available)} available`;
  rows("offers", offers.items, (offer) => [
    cell(code(offer.id)), cell(String(offer.cards), "number"), cell(String(offer.metered_cards), "number"),
    cell(offer.pool_size_bytes ? gib(offer.pool_size_bytes) : "–", "number"), cell(offer.links ? `${offer.links.class_min} to ${offer.links.class_max}` : "–"),
    cell(money(offer.price.per_hour), "number"), cell(String(offer.availability.count), "number"),
  ], "Nothing is offered yet: no host has joined.");
  rows("instances", instances.items, (instance) => [
    cell(code(instance.id)), cell(instance.reason_code ? `${instance.state} (${instance.reason_code})` : instance.state),
    cell(cards(residency.get(instance.id))), cell(instance.since),
  ], "No instances yet.");
  rows("charges", charges.items, (charge) => [
    cell(code(charge.instance_id)), cell(charge.item === "disk" ? `disk, ${charge.size_gib} GiB` : code(charge.primary_gpu_uuid)), cell(String(charge.seconds), "number"),
    cell(money(charge.rate_per_hour), "number"), cell(money(charge.amount), "number"),
  ], "No charges yet.");
}

async function keepFresh() {
  try {
    await refresh();
    problem(null);
  } catch (error) {
    problem(error);
  }
  setTimeout(keepFresh, REFRESH_MILLISECONDS);
}

page("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const body = JSON.stringify({ email: page("email").value, password: page("password").value });
    token = (await call("/v1/auth/login", { method: "POST", body })).access_token;
    page("password").value = "";
    page("sign-in").hidden = true;
    page("signed-in").hidden = false;
    await keepFresh();
  } catch (error) {
    problem(error);
  }
});
