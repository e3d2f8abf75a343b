import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./api.js";

/** The documents and answers of the API, by name. */
export type Schemas = components["schemas"];

/** A client of the Drover at this address. Each operation is a path and a method of `/openapi.json`. */
export function drover(url: string, token: string): Client<paths> {
  return createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${token}` } });
}
