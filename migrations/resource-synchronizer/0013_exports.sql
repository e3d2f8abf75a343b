-- Whether a bundle has a ServiceExport: then its Services are imported in the members of the pod network.
alter table bundle add column exports boolean not null default false;

-- Who exports a Service of a name.
create index inventory_exports on inventory (namespace, name) where kind = 'ServiceExport';
